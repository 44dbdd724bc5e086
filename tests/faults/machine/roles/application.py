"""A FastStream application with a broker, as workers of queues and members of topics have it."""

from typing import Any

from faststream import FastStream

from faststream_outbox import OutboxBroker
from tests.faults.machine.history import Pen
from tests.faults.machine.part import Part
from tests.faults.machine.roles.run import UntilItWorks
from tests.faults.machine.stage import Tables


class Application:
    """Started and stopped as a whole; `options` are those of its subscribers."""

    def __init__(self, part: Part, pen: Pen, tables: Tables, **broker: Any) -> None:
        self.pen = pen
        self.engine = part.engine()
        self.broker = OutboxBroker(
            self.engine,
            outbox_table=tables.outbox,
            dlq_table=tables.dead,
            logger=None,
            listen_dsn=part.dsn if part.pooled else None,
            **broker,
        )
        self.options: dict[str, Any] = {
            "lease_ttl_seconds": part.lease_seconds,
            "min_fetch_interval": 0.5,
            "max_fetch_interval": 1.5,
            "retry_strategy": UntilItWorks(),
            **part.options,
        }
        self.app = FastStream(self.broker, logger=None)

    async def start(self) -> None:
        await self.app.start()

    async def stop(self) -> None:
        await self.app.stop()
        await self.engine.dispose()
