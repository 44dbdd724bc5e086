"""What operators need of a log: a connection of their own, its groups, and a way to call those who read.

The log's client is it. Used by whatever operators ask or change, here and in `deferral`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.ordering.sequencer import Sequencer
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.schema.log_tables import LogNames


class OperatedLog(Protocol):
    """A log, as operators know it."""

    names: LogNames
    events: Events
    sequencer: Sequencer
    operator_connection: DedicatedConnection

    @property
    def groups(self) -> set[Group]:
        """Groups that are read in this process."""
        ...

    async def ask(self, name: str, values: dict[str, Any]) -> Sequence[Row]:
        """Run one of the statements about positions."""
        ...

    async def call(self, *groups: Group) -> None:
        """Tell readers of these groups, in every process, that something has changed."""
        ...
