"""What an operator asks of a broker: pause a queue, groups, relays, health, and gauges of the database.

Thin calls of the packages that know the tables: `queue.pause`, `log.admin`, `relay.status`, `health` and `metrics`,
imported when they are asked for, because most processes never do. What is paused is so in every process; the broker
adds the queues of its own subscribers to those of the tables. A mixin of `OutboxBroker`.
"""

from typing import TYPE_CHECKING, Any

from faststream.exceptions import IncorrectState
from typing_extensions import override

from faststream_outbox._internal.broker.backend import Backend, DatabaseBackend, replacement_for
from faststream_outbox._internal.broker.topic import WITHOUT_LOG

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
    from faststream_outbox._internal.health.health import Checks
    from faststream_outbox._internal.health.progress import Parts
    from faststream_outbox._internal.log.admin.groups import Groups
    from faststream_outbox._internal.log.admin.parked import Parking
    from faststream_outbox._internal.log.client import LogClient
    from faststream_outbox._internal.metrics.sampler import Sampler
    from faststream_outbox._internal.queue.client import OutboxClient
    from faststream_outbox._internal.relay.relay import Relay
    from faststream_outbox._internal.relay.status import RelayStatus

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class OperatingMixin(Home):
    """`pause`, `resume`, `paused`, `groups`, `parked`, `relay_status`, `checks` and `ping`."""

    _database: DatabaseBackend | None
    _recorder: Any
    _checks: "Checks | None" = None
    _sampler: "Sampler | None" = None

    if TYPE_CHECKING:

        @property
        def relays(self) -> "list[Relay]": ...

    async def pause(self, queue: str, *, create: bool = False) -> bool:
        """Claim no more messages of a queue, in any process, until it is resumed; False if it was paused already.

        What runs goes on, and so does publishing.

        queue: its name, with the prefixes of its routers. One that nobody knows is refused with `UnknownName`.
        create: pause it even so.
        """
        from faststream_outbox._internal.queue.pause import pause

        return await pause(self.config.broker_config.client, queue, create=create, known=self._queues())

    async def resume(self, queue: str) -> bool:
        """Claim messages of a queue again, in every process; False if it was not paused.

        queue: its name, with the prefixes of its routers. One that nobody knows is refused with `UnknownName`, as
            long as others are paused.
        """
        from faststream_outbox._internal.queue.pause import resume

        return await resume(self.config.broker_config.client, queue, known=self._queues())

    async def paused(self) -> list[str]:
        """The queues that are paused."""
        from faststream_outbox._internal.queue.pause import paused

        return await paused(self.config.broker_config.client)

    def _queues(self) -> set[str]:
        return {
            queue
            for subscriber in self.subscribers
            if getattr(subscriber, "group", None) is None
            for queue in getattr(subscriber, "queues", ())
        }

    @property
    def groups(self) -> "Groups":
        """Groups of topics, in every process: `list`, `pause`, `resume`, `paused` and `delete`."""
        return self._backend.groups

    @property
    def parked(self) -> "Parking":
        """Messages of topics that failed for good, or wait: `list`, `retry`, `resolve` and `skip`."""
        return self._backend.parked

    @property
    def _backend(self) -> Backend:
        config = self.config.broker_config
        if config.own_backend is None:
            raise IncorrectState(WITHOUT_LOG)
        return config.backend

    async def relay_status(self) -> "list[RelayStatus]":
        """Each relay, once for each broker that it sends to: whether that answers, and how old the oldest message is.

        Asks the database on a connection of its own; also where the broker was not started.
        """
        from faststream_outbox._internal.relay.status import relay_status

        return await relay_status(self.relays, self.config.broker_config.backend.relay_ages)

    @property
    def checks(self) -> "Checks":
        """What looks after its health; in tests without a database all is well."""
        from faststream_outbox._internal.health.health import Checks

        config = self.config.broker_config
        replacement = replacement_for(config)
        if (config.own_backend if replacement is None else replacement.backend) is not self._database:
            return Checks(None)
        if self._checks is None:
            self._checks = Checks(self._parts())
        return self._checks

    def _parts(self) -> "Parts":
        from faststream_outbox._internal.health.progress import Parts

        if self._database is None:
            return Parts()
        return Parts(self._database.client, self.config.broker_config.log_client, lambda: self.relays)

    @override
    async def ping(self, timeout: float | None = None) -> bool:
        """Whether the database answers and has the tables and, while consuming, every loop moves on.

        timeout: seconds to wait for the answer; None waits for as long as it takes to know.
        """
        found = await self.checks.health(timeout)
        if not self.running and self._checks is not None:
            # Nobody else would close it.
            await self._checks.close()
        return found.live and found.ready

    def _look_after(self) -> None:
        """Examine the tables, and ask for gauges, in the background."""
        self.checks.begin()
        every: float | None = getattr(self._recorder, "sample_every", None)
        if every is not None and self._database is not None:
            self._sampler = self._make_sampler(self._database.client, every)
            self._sampler.start()

    async def _look_away(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            await sampler.stop()
        if self._checks is not None:
            await self._checks.close()

    def _make_sampler(self, client: "OutboxClient", every: float) -> "Sampler":
        from faststream_outbox._internal.connections.dedicated import DedicatedConnection
        from faststream_outbox._internal.metrics.sampler import Sampler
        from faststream_outbox._internal.overview.overview import TIMEOUT, Overview

        log: LogClient | None = self.config.broker_config.log_client
        tables = [client.names.table, *([client.names.dead] if client.names.dead else [])]
        log_name: str | None = None
        if log is not None:
            places = log.names.places()
            log_name = log.tables.log.name
            tables += [places[place] for place in ("log", "offsets", "deferred")]
        engine = client.engine
        overview = Overview(
            engine,
            table=client.table,
            dlq_table=client.dlq_table,
            log_tables=None if log is None else log.tables,
        )
        return Sampler(
            self._recorder,
            overview,
            lambda: DedicatedConnection(engine, timeout=TIMEOUT, identity=client.identity, role="overview"),
            client.names,
            client.events,
            every=every,
            log=log_name,
            tables=tables,
            relay_status=getattr(self, "relay_status", None) if self.relays else None,
        )
