"""`TestOutboxBroker`: the broker without a database.

Puts a `MemoryBackend` and a producer for it in the place of the broker's own. By default `publish` runs the handler
before it returns, due time or not, and raises what the handler raised. With `run_loops=True` loops run on tables in
memory, for queues the engine's own, and time can be advanced; topics are handed to subscribers by loops of the test
broker, so that no subscriber has a worker for them. One suite runs the same scenarios in both ways and on PostgreSQL.
FastStream finds it through `registration`.
"""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn, cast, overload
from unittest.mock import patch

from faststream.exceptions import IncorrectState

from faststream_outbox._internal.broker._faststream import EnterType, TestBroker, change_producer
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig, replaced
from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.publisher import OutboxPublisher
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.recorder import record
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.memory.client import FakeOutboxClient, MemoryDatabase
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.testing.delivering import Immediate, TopicLoops
from faststream_outbox._internal.testing.producer import FakeProducer

_NO_GROUPS = (
    "The test broker keeps no groups that operators could change. Look at broker.fake_client.parked, "
    "and put groups elsewhere with broker.fake_client.seek(…)."
)


class MemoryBackend:
    """Queues and topics in memory."""

    reaches_other_brokers = False
    relay_ages = None

    def __init__(self, client: FakeOutboxClient) -> None:
        self._client = client

    @property
    def client(self) -> FakeOutboxClient:
        """The client in memory."""
        return self._client

    @property
    def groups(self) -> NoReturn:
        """Refused: there are none."""
        raise IncorrectState(_NO_GROUPS)

    @property
    def parked(self) -> NoReturn:
        """Refused: `fake_client.parked` has them."""
        raise IncorrectState(_NO_GROUPS)

    def make_topic_worker(
        self, groups: Sequence[Group], handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> None:
        """None: messages of topics come without one."""

    def conflicted(self, *, reads_topic: bool) -> None:
        """Transactions in memory are never in conflict; a test may say that one was."""
        self._client.isolation.doubt()

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Tables in memory are as they should be."""


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
        backend, producer = MemoryBackend(client), FakeProducer(config, client, self.brokers, self._immediate)
        self._was_running |= {subscriber: subscriber.running for subscriber in _subscribers(broker)}
        if broker.running:
            # Something is tried out on it: everybody else goes on with the database meanwhile.
            with replaced(config, backend, producer), patch.object(broker, "fake_client", client, create=True):
                yield
            return
        with (
            change_producer(config, producer),
            patch.object(config, "own_backend", backend),
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

    async def _fake_connect(self, broker: OutboxBroker, *args: Any, **kwargs: Any) -> FakeOutboxClient:  # type: ignore[override]  # its own
        return cast("FakeOutboxClient", broker.client)

    @asynccontextmanager
    async def _do_start(self, broker: OutboxBroker) -> AsyncGenerator[OutboxBroker, None]:
        async with super()._do_start(broker) as started:
            workers: dict[OutboxSubscriber, tuple[Worker, Worker | LogWorker | None]] = {}
            if self._topics is not None and not self.with_real and not self.connect_only:
                for subscriber in _subscribers(broker):
                    if subscriber.group is not None:
                        continue
                    worker = subscriber.make_worker()
                    workers[subscriber] = (worker, subscriber.worker)
                    subscriber.worker = worker
                    await worker.start()
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
    if config.own_backend is not None and not is_tried:
        return config.own_backend.client.events
    events = Events()
    if config.metrics_recorder is not None and not is_tried:
        record(events, config.metrics_recorder)
    return events
