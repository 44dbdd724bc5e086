"""Values as JSON: fields of dataclasses under their names, ISO times, bytes as text or base64.

One shape for every command: `{"command", "exit_code", "data", "error"}`. Nothing but ASCII leaves, so that no byte of a
stranger reaches a terminal as it is. Used by `printing`; docs/cli.md has the shape.
"""

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from faststream_outbox._internal.cli.exits import Exit


def document(command: str, exit: Exit, data: object, error: tuple[str, str] | None = None) -> str:
    """What a command prints: one object on one line, or on several for people who look at it."""
    shown = None if error is None else {"type": error[0], "message": error[1]}
    return json.dumps({"command": command, "exit_code": int(exit), "data": as_json(data), "error": shown})


def as_json(value: Any) -> Any:
    """A value made of what JSON has."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return _body(value)
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    as_dict: Any = getattr(value, "_asdict", None)
    if as_dict is not None:
        return as_json(as_dict())
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [as_json(each) for each in value]
    return str(value)


def _body(value: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "value": value.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "value": b64encode(value).decode("ascii")}
