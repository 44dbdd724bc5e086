"""How the broker is, and what it shows of the database: `ping`, `checks`, and the sampler of its recorder.

Thin calls of `faststream_outbox.health` and `faststream_outbox.metrics`.
"""

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from faststream_outbox._internal.broker.backend import replacement_for
from faststream_outbox._internal.broker.database import DatabaseBackend
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.health.health import Checks
from faststream_outbox._internal.health.parts import Parts
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.metrics.sampler import Sampler
from faststream_outbox._internal.overview.overview import TIMEOUT, Overview
from faststream_outbox._internal.queue.client import OutboxClient

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.config import OutboxBrokerConfig
    from faststream_outbox._internal.relay.relay import Relay

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class WellMixin(Home):
    """`ping`, `checks`, and what is shown of the database."""

    _database: DatabaseBackend | None
    _recorder: Any
    _checks: Checks | None = None
    _sampler: Sampler | None = None

    if TYPE_CHECKING:

        @property
        def relays(self) -> list[Relay]: ...

    @property
    def checks(self) -> Checks:
        """What looks after its health; in tests without a database all is well."""
        config = self.config.broker_config
        replacement = replacement_for(config)
        if (config.own_backend if replacement is None else replacement.backend) is not self._database:
            return Checks(None)
        if self._checks is None:
            self._checks = Checks(self._parts())
        return self._checks

    def _parts(self) -> Parts:
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

    def _make_sampler(self, client: OutboxClient, every: float) -> Sampler:
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
