"""The GRANTs of the security page, as statements and as single rights."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.pages import parts, text_of

PAGE = "docs/security.md"
ROLES = (
    "outbox_producer", "outbox_scheduler", "outbox_worker", "outbox_publisher", "outbox_consumer", "outbox_receiver",
    "outbox_operator", "outbox_viewer",
)  # fmt: skip

_GRANT = re.compile(r"GRANT (?P<rights>.+?)\s+ON (?P<on>(?:SEQUENCE )?\w+) TO (?P<role>\w+)", re.DOTALL)
_RIGHT = re.compile(r"(\w+)(?: \(([^)]+)\))?(?:,\s*|$)")


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that one role may do to one object."""

    role: str
    privilege: str
    column: str | None
    on: str

    @property
    def revoke(self) -> str:
        """The statement that takes it away."""
        return f"REVOKE {self._what} ON {self.on} FROM {self.role}"

    @property
    def grant(self) -> str:
        """The statement that gives it back."""
        return f"GRANT {self._what} ON {self.on} TO {self.role}"

    @property
    def _what(self) -> str:
        return self.privilege if self.column is None else f"{self.privilege} ({self.column})"


def printed(heading: str) -> list[str]:
    """The statements of a section, as they are printed."""
    section = text_of(PAGE).split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = [part.code for part in parts(PAGE) if part.language == "sql" and part.code in section]
    found = [statement.strip() for block in blocks for statement in block.split(";")]
    return [statement for statement in found if statement]


def granted() -> list[str]:
    """Every GRANT of the page."""
    return [statement for statement in printed("Grants") if statement.startswith("GRANT ")]


def rights(role: str) -> Iterator[Right]:
    """The single rights of a role, column by column where it was granted columns."""
    for statement in granted():
        match = _GRANT.fullmatch(statement)
        if match is None or match["role"] != role:
            continue
        for privilege, columns in _RIGHT.findall(match["rights"]):
            for column in columns.split(",") if columns else [None]:
                yield Right(role, privilege, None if column is None else column.strip(), match["on"])
