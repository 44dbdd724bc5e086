"""What a message is known by: its consumer, its source and its id, checked before any SQL is sent.

Also the number of the lock that says that somebody is about it: two deliveries of one message draw the same. Used by
both forms of the inbox.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from faststream_outbox._internal.envelope import checked_text
from faststream_outbox._internal.schema.inbox_table import SOURCE_LENGTH
from faststream_outbox.errors import InvalidMessage

MOST_BYTES = 2500
"""What fits into an entry of the primary key's index."""


@dataclass(frozen=True, slots=True)
class Key:
    """One message of one source, for one consumer."""

    consumer: str
    source: str
    message_id: str

    @classmethod
    def of(cls, consumer: str, source: object, message_id: object) -> "Key":
        """The key of these, or an error that says which of them PostgreSQL would refuse."""
        # Numbers and UUIDs are ids as good as text, and have one text each.
        text = message_id if isinstance(message_id, str | bytes | None) else str(message_id)
        key = cls(consumer, checked_text(source, "source", length=SOURCE_LENGTH), checked_text(text, "message_id"))
        size = sum(len(part.encode()) for part in (key.consumer, key.source, key.message_id))
        if size > MOST_BYTES:
            msg = f"consumer, source and message_id have {size} bytes together; at most {MOST_BYTES} fit."
            raise InvalidMessage(msg)
        return key

    def values(self, table: str) -> dict[str, Any]:
        """The parameters of the inbox's statements, for the table of this name."""
        parts = (table, self.consumer, self.source, self.message_id)
        digest = blake2b(repr(parts).encode(), digest_size=8).digest()
        return {
            "lock": int.from_bytes(digest, signed=True),
            "consumer": self.consumer,
            "source": self.source,
            "message_id": self.message_id,
        }
