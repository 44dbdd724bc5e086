"""The consumer at the far end: reads the stream of NATS with an inbox, and writes an effect for each message."""

import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub

from faststream_outbox import Inbox
from faststream_outbox.annotations import InboxSession
from tests.faults.machine.history import FINISHED, Pen
from tests.faults.machine.part import Part
from tests.faults.machine.roles.run import DONE, effect
from tests.faults.machine.stage import FROM_QUEUE, FROM_TOPIC, INBOX, STREAM, Tables

ACK_SECONDS = 3.0


class Consumer:
    """A FastStream application of NATS."""

    def __init__(self, part: Part, pen: Pen) -> None:
        assert part.nats is not None
        self._pen = pen
        self._engine = part.engine()
        self._inbox = inbox = Inbox(self._engine, Tables().inbox, consumer="machine")
        nats = NatsBroker(
            part.nats, max_reconnect_attempts=-1, reconnect_time_wait=1, logger=None, middlewares=[inbox.middleware]
        )
        for subject in (FROM_QUEUE, FROM_TOPIC):
            nats.subscriber(
                subject,
                stream=JStream(STREAM, declare=False),
                durable=subject.replace(".", "-"),
                pull_sub=PullSub(batch_size=20, timeout=0.5),
                config=ConsumerConfig(ack_wait=ACK_SECONDS, max_ack_pending=200),
                max_workers=4,
                ack_policy=AckPolicy.NACK_ON_ERROR,
            )(self.receive)
        inbox.check(nats)
        self._app = FastStream(nats, logger=None)

    async def receive(self, body: dict[str, Any], session: InboxSession) -> None:
        place = f"{INBOX}/{body['place']}"
        await effect(session, place, body, os.getpid())
        self._pen.write(FINISHED, run=0, place=place, outcome=DONE, id=body["id"])

    async def start(self) -> None:
        await self._app.start()

    async def stop(self) -> None:
        await self._app.stop()
        await self._inbox.stop()
        await self._engine.dispose()
