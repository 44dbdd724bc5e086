"""The relay: a queue and a group of the topic go to a stream of NATS."""

from typing import Any

from faststream import FastStream
from faststream.nats import NatsBroker

from faststream_outbox import OutboxBroker
from faststream_outbox.events import Relayed
from tests.faults.machine.history import FINISHED, Pen
from tests.faults.machine.part import Part
from tests.faults.machine.roles.run import DONE
from tests.faults.machine.stage import FACTS, FROM_QUEUE, FROM_TOPIC, OUT_GROUP, OUTWARD, STREAM, Tables


class Relay:
    """A FastStream application of two brokers."""

    def __init__(self, part: Part, pen: Pen) -> None:
        assert part.nats is not None
        self._engine = part.engine()
        tables = Tables()
        self.broker = OutboxBroker(
            self._engine,
            outbox_table=tables.outbox,
            dlq_table=tables.dead,
            log_tables=tables.log,
            logger=None,
            listen_dsn=part.dsn if part.pooled else None,
        )
        self.broker.client.events.subscribe(lambda sent: self._relayed(pen, sent), Relayed)
        nats = NatsBroker(part.nats, max_reconnect_attempts=-1, reconnect_time_wait=1, logger=None)
        options: dict[str, Any] = {
            "lease_ttl_seconds": part.lease_seconds,
            "batch_size": 50,
            "max_in_flight": 200,
            **part.options,
        }
        to_queue, to_topic = nats.publisher(FROM_QUEUE, stream=STREAM), nats.publisher(FROM_TOPIC, stream=STREAM)
        self.broker.relay(OUTWARD, to=to_queue, min_fetch_interval=0.5, max_fetch_interval=1.5, **options)
        self.broker.relay(topic=FACTS, group=OUT_GROUP, to=to_topic, **options)
        self._app = FastStream(self.broker, nats, logger=None)

    @staticmethod
    def _relayed(pen: Pen, event: Relayed) -> None:
        pen.write(FINISHED, run=0, place=event.relay, outcome=DONE, sent=event.sent)

    async def start(self) -> None:
        await self._app.start()

    async def stop(self) -> None:
        await self._app.stop()
        await self._engine.dispose()
