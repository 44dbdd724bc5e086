"""The backend of a broker that has an engine: the clients of both engines, on PostgreSQL.

Made by the broker. The log's half is missing where the broker was given no tables for topics.
"""

from collections.abc import Sequence
from typing import Any

from faststream.exceptions import IncorrectState

from faststream_outbox._internal.broker.topic import WITHOUT_LOG
from faststream_outbox._internal.log.admin.groups import Groups
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.deferral.parked import Parking
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.relay.status import RelayAges
from faststream_outbox._internal.schema.check import validate_log_schema, validate_schema


class DatabaseBackend:
    """Queues and topics in PostgreSQL."""

    reaches_other_brokers = True

    def __init__(self, client: OutboxClient, log: LogClient | None) -> None:
        self._client = client
        self._log = log
        self._relay_ages = RelayAges(client.engine, client.names, None if log is None else log.names)

    @property
    def client(self) -> OutboxClient:
        """The queues' half."""
        return self._client

    @property
    def log(self) -> LogClient:
        """The topics' half."""
        if self._log is None:
            raise IncorrectState(WITHOUT_LOG)
        return self._log

    @property
    def groups(self) -> Groups:
        """Groups of topics, for operators."""
        return Groups(self.log)

    @property
    def parked(self) -> Parking:
        """What groups have deferred, for operators."""
        return Parking(self.log)

    @property
    def relay_ages(self) -> RelayAges:
        """How old what is not relayed yet is."""
        return self._relay_ages

    def make_topic_worker(
        self, groups: Sequence[Group], handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> LogWorker:
        """Members of groups."""
        return LogWorker(self.log, groups, handle, options=options, members=members, batch=batch, name=name)

    def conflicted(self, *, reads_topic: bool) -> None:
        """Look at the isolation again before the next transaction of a handler."""
        self._client.isolation.doubt()
        if reads_topic:
            self.log.isolation.doubt()

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that subscribers need is alive."""
        return self._client.is_healthy and (self._log is None or self._log.is_healthy)

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Compare the tables with what they should be."""
        client = self._client
        await validate_schema(
            client.engine,
            client.table,
            client.dlq_table,
            check_autovacuum=check_autovacuum,
            check_rights=check_rights,
        )
        if self._log is not None:
            await validate_log_schema(client.engine, self._log.tables, check_rights=check_rights)

    async def close(self) -> None:
        """Announce what was just committed, before the caller disposes of the engine; close the log's connections."""
        await self._client.wakeups.close()
        if self._log is not None:
            await self._log.close()
        await self._relay_ages.close()
