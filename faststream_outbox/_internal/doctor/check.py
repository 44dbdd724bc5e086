"""A check: its name, what it sees, which tables it needs, and what runs it.

What it asks the server is a named statement, what it makes of the answer a pure function beside it. The page on the
doctor has a row for each; a test holds it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from faststream_outbox._internal.doctor.finding import Finding
from faststream_outbox._internal.doctor.patient import Examined, Patient

Part = Literal["queue", "dead", "log"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the system."""

    name: str
    sees: str
    """What it finds, as the page says it."""
    healthy: str
    """The title where there is nothing wrong."""
    run: Callable[[Patient], Awaitable[Sequence[Finding]]]
    needs: tuple[Part, ...] = ()

    def applies(self, tables: Examined) -> bool:
        """Whether the tables are there that it is about."""
        there = {"queue": tables.table, "dead": tables.dlq_table, "log": tables.log_tables}
        return all(there[part] is not None for part in self.needs)

    def fine(self) -> Finding:
        """Nothing is wrong."""
        return Finding(self.name, "ok", self.healthy, "", "", None)
