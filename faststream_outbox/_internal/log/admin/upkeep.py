"""What the janitor does for a log: partitions ahead of the numbers, and retention.

Partitions are as large as the newest one, and as many ahead as ten rounds of the last growth take, so that nobody who
publishes meets a missing one. A group that expired is reported once by a process, and again after it had come back.
Made by the log's client where it was given a `Retention`.
"""

from typing import TYPE_CHECKING

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.janitor import Chore, Janitor, Retention
from faststream_outbox._internal.log.admin.partitions import Partitions, newest_size
from faststream_outbox._internal.log.admin.retention import clean
from faststream_outbox._internal.sql import statements

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient

SIZE = 1_000_000
"""Positions of the first partition, where nobody has made one yet."""
AHEAD = 2
ROUNDS_AHEAD = 10


class Upkeep:
    """The chores of one log."""

    def __init__(
        self, client: "LogClient", retention: Retention, guard: DedicatedConnection, connection: DedicatedConnection
    ) -> None:
        self._client = client
        self._retention = retention
        self._connection = connection
        self._log = client.names.places()["log"]
        self._drawn: int | None = None
        self._expired: set[tuple[str, str]] = set()
        chores: list[Chore] = []
        if client.tables.is_partitioned:
            chores.append(Chore("partitions of " + self._log, self.make_partitions))
        if retention.messages is not None:
            chores.append(Chore("retention of " + self._log, self.clean))
        self.janitor = Janitor(
            guard,
            (statements("retention", client.names)["lock_janitor"], self._log),
            chores,
            client.events,
            every=retention.every.total_seconds(),
            close=connection.close,
        )

    async def make_partitions(self) -> None:
        """Make partitions ahead of the numbers."""
        client = self._client
        size = await newest_size(client.engine, client.tables) or SIZE
        partitions = Partitions(client.engine, client.tables, size)
        drawn = await partitions.drawn()
        growth = 0 if self._drawn is None else max(0, drawn - self._drawn)
        self._drawn = drawn
        made = await partitions.ensure(max(AHEAD, -(-ROUNDS_AHEAD * growth // size)))
        if made:
            client.events.emit(events.PartitionsMade(self._log, tuple(made)))

    async def clean(self) -> None:
        """Delete what is old and read."""
        client, keep = self._client, self._retention.messages
        if keep is None:
            return
        cleaned = await clean(
            self._connection,
            client.names,
            client.events,
            older_than=keep,
            group_expires_after=self._retention.group_expires_after,
            partitions=Partitions(client.engine, client.tables, 1) if client.tables.is_partitioned else None,
            expired=self._expired,
        )
        if cleaned.messages or cleaned.ticks or cleaned.partitions:
            event = events.LogCleaned(self._log, cleaned.messages, cleaned.ticks, cleaned.partitions)
            client.events.emit(event)
