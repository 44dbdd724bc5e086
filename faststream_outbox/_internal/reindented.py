"""JSON with other white space and nothing else changed: numbers, escapes and double keys stay as they were written.

Read and written again by `json`, a body would come back as another one. Pure. Used by `cli` and `dashboard`.
"""

import json
import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_STEP = "  "


def is_json(text: str) -> bool:
    """Whether it is an object or an array in JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def reindented(text: str) -> str | None:
    """The same JSON, one member a line; None where it is none."""
    if not is_json(text):
        return None
    parts: list[str] = []
    depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
        if (token in "}]" and before not in "{[") or (before and before in "{[," and token not in "}]"):
            parts.append("\n" + _STEP * depth)
        parts.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
        before = token
    return "".join(parts)


def compact(text: str) -> str:
    """The same JSON without white space between its parts."""
    return "".join(_TOKEN.findall(text))
