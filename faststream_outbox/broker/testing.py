"""`TestOutboxBroker`: the broker without a database.

By default `publish` runs the handler before it returns, due time or not, and raises what the handler
raised. With `run_loops=True` loops run on tables in memory, for queues the engine's own, and time can be advanced. One
suite runs the same scenarios in both ways and on PostgreSQL. Registers itself with FastStream.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, cast, overload
from unittest.mock import MagicMock, patch

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox.broker._faststream import EnterType, TestBroker, change_producer
from faststream_outbox.broker.broker import OutboxBroker
from faststream_outbox.broker.config import OutboxBrokerConfig
from faststream_outbox.broker.fake_client import FakeOutboxClient, MemoryDatabase, idle_session
from faststream_outbox.broker.fake_producer import FakeProducer
from faststream_outbox.broker.immediate import Immediate
from faststream_outbox.broker.memory_transaction import ATTRIBUTE, MemoryTransaction
from faststream_outbox.broker.publisher import OutboxPublisher
from faststream_outbox.broker.reading import TopicLoops
from faststream_outbox.broker.stand_in import StandIn, standing_in
from faststream_outbox.broker.subscriber import OutboxSubscriber
from faststream_outbox.events import Events
from faststream_outbox.events.recorder import record
from faststream_outbox.log.worker import LogWorker
from faststream_outbox.queue.worker import Worker


def fake_session() -> AsyncSession:
    """A session that does nothing, for tests that publish; its rollback takes back what was published through it."""
    return cast("AsyncSession", idle_session(MemoryTransaction(is_hidden=False)))


def fake_sync_session() -> Session:
    """The same, for tests of code without an event loop."""
    transaction = MemoryTransaction(is_hidden=False)
    session = MagicMock(spec=Session)
    session.in_transaction.return_value = True
    setattr(session, ATTRIBUTE, transaction)
    session.commit.side_effect = transaction.commit
    session.rollback.side_effect = transaction.rollback
    session.close.side_effect = transaction.rollback
    return cast("Session", session)


class TestOutboxBroker(TestBroker[OutboxBroker, EnterType], broker=OutboxBroker):
    """Runs brokers without a database."""

    @overload
    def __init__(
        self: "TestOutboxBroker[OutboxBroker]",
        broker: OutboxBroker,
        /,
        *,
        run_loops: bool = False,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "TestOutboxBroker[tuple[OutboxBroker, ...]]",
        *brokers: OutboxBroker,
        run_loops: bool = False,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(
        self,
        *brokers: OutboxBroker,
        run_loops: bool = False,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None:
        super().__init__(*brokers, with_real=with_real, connect_only=connect_only)
        self.run_loops = run_loops
        self.fake_client: FakeOutboxClient | None = None
        self._database = MemoryDatabase()
        self._immediate: Immediate | None = None
        self._topics: TopicLoops | None = None
        self._was_running: dict[OutboxSubscriber, bool] = {}

    def feed(self, queue: str, payload: bytes, **fields: Any) -> int | None:
        """Put a row into the table in memory, as another producer would."""
        assert self.fake_client is not None, "feed() works inside `async with`."
        return self.fake_client.feed(queue, payload, **fields)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass for retries and timers; of use with `run_loops=True`."""
        assert self.fake_client is not None, "advance() works inside `async with`."
        self.fake_client.advance(by)

    async def __aenter__(self) -> EnterType:
        """Begin with empty tables."""
        self._database = MemoryDatabase()
        self._immediate = None if self.run_loops else Immediate(self.brokers)
        self._topics = TopicLoops(self.brokers) if self.run_loops else None
        return await super().__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Put the broker back, once everything was handled that was published without an event loop."""
        late: list[BaseException] = []
        try:
            if self._immediate is not None:
                late = await self._immediate.finish()
        finally:
            await super().__aexit__(exc_type, exc_val, exc_tb)
        if late and exc_val is None:
            raise late[0]

    def create_publisher_fake_subscriber(
        self, broker: OutboxBroker, publisher: OutboxPublisher
    ) -> tuple[OutboxSubscriber, bool]:
        """Somebody who receives what the publisher publishes."""
        for subscriber in _subscribers(*self.brokers):
            reads_topics = subscriber.group is not None
            if publisher.queue in subscriber.queues and publisher.is_topic == reads_topics:
                return subscriber, True
        if publisher.is_topic:
            return broker.subscriber(topic=publisher.queue, group="test publisher", persistent=False), False
        return broker.subscriber(publisher.queue, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: OutboxBroker) -> Generator[None, None, None]:
        config = broker.config.broker_config
        assert config.outbox_table is not None
        client = FakeOutboxClient(
            config.outbox_table,
            config.dlq_table,
            log_table=None if config.log_tables is None else config.log_tables.log,
            database=self._database,
            events=_events(config, is_tried=broker.running),
            last_exception_renderer=config.last_exception_renderer,
        )
        self.fake_client = client
        if self._immediate is not None:
            client.freed = self._immediate.handle_free
        if self._topics is not None:
            client.topics_changed = self._topics.wake
        producer = FakeProducer(config, self.brokers, self._immediate)
        self._was_running |= {subscriber: subscriber.running for subscriber in _subscribers(broker)}
        if broker.running:
            with (
                standing_in(StandIn(config, client, producer)),
                patch.object(broker, "fake_client", client, create=True),
            ):
                yield
            return
        with (
            change_producer(config, producer),
            patch.object(config, "shared_client", client),
            patch.object(broker, "fake_client", client, create=True),
        ):
            yield

    def _fake_close(
        self,
        broker: OutboxBroker,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        super()._fake_close(broker, exc_type, exc_val, exc_tb)
        # A broker that consumed before goes on: something was only tried out on it.
        for subscriber in _subscribers(broker):
            subscriber.running = self._was_running.get(subscriber, False)

    async def _fake_connect(self, broker: OutboxBroker, *args: Any, **kwargs: Any) -> FakeOutboxClient:  # type: ignore[override]
        return cast("FakeOutboxClient", broker.client)

    @asynccontextmanager
    async def _do_start(self, broker: OutboxBroker) -> AsyncGenerator[OutboxBroker, None]:
        async with super()._do_start(broker) as started:
            workers: dict[OutboxSubscriber, tuple[Worker, Worker | LogWorker | None]] = {}
            if self._topics is not None and not self.with_real and not self.connect_only:
                for subscriber in _subscribers(broker):
                    if subscriber.group is not None:
                        continue
                    workers[subscriber] = (subscriber.make_worker(), subscriber.worker)
                    subscriber.worker = workers[subscriber][0]
                    await workers[subscriber][0].start()
                self._topics.start()
            try:
                yield started
            finally:
                if self._topics is not None:
                    await self._topics.stop()
                for subscriber, (worker, former) in workers.items():
                    await worker.stop(timeout=1.0)
                    subscriber.worker = former


def _subscribers(*brokers: OutboxBroker) -> list[OutboxSubscriber]:
    return [cast("OutboxSubscriber", subscriber) for broker in brokers for subscriber in broker.subscribers]


def _events(config: OutboxBrokerConfig, *, is_tried: bool) -> Events:
    """Those of the real client, so that whoever listens there hears; others where something is only tried out."""
    if config.shared_client is not None and not is_tried:
        return config.shared_client.events
    events = Events()
    if config.metrics_recorder is not None and not is_tried:
        record(events, config.metrics_recorder)
    return events


__all__ = ["FakeOutboxClient", "TestOutboxBroker", "fake_session", "fake_sync_session"]
