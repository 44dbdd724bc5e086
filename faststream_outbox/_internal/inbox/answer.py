"""What a handler answered, as it is kept with the receipt: bytes, how to read them, and headers.

Used by both forms of the inbox, and by what replays it to a request that came again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faststream_outbox._internal.sql.inbox_rows import Kept


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that can be given again."""

    body: bytes
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def values(self) -> dict[str, Any]:
        """The parameters that keep it; headers that JSON does not know are kept as text."""
        headers = json.dumps(dict(self.headers), default=str) if self.headers else None
        return {"body": self.body, "content_type": self.content_type, "headers": headers}

    @classmethod
    def read(cls, row: Kept) -> "Answer":
        """The answer of a row."""
        return cls(bytes(row.body), row.content_type, json.loads(row.headers) if row.headers else {})
