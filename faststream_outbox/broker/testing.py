"""`TestOutboxBroker`: the broker without a database.

By default `publish` runs the handler before it returns, due time or not, and raises what the handler
raised. With `run_loops=True` the engine's own loops run on tables in memory: retries, timers and keys
behave as they do on PostgreSQL, and time can be advanced. Registers itself with FastStream.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, cast, overload
from unittest.mock import AsyncMock, patch

from faststream.exceptions import SubscriberNotFound
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox.broker._faststream import EnterType, TestBroker, change_producer
from faststream_outbox.broker.broker import OutboxBroker
from faststream_outbox.broker.fake_client import FakeOutboxClient
from faststream_outbox.broker.memory import MemoryRow
from faststream_outbox.broker.memory_log import MemoryLog, deliver, readers
from faststream_outbox.broker.message import Taken
from faststream_outbox.broker.producer import OutboxProducer, Rows, as_topic_message
from faststream_outbox.broker.publisher import OutboxPublisher
from faststream_outbox.broker.response import OutboxPublishCommand
from faststream_outbox.broker.stand_in import StandIn, standing_in
from faststream_outbox.broker.subscriber import OutboxSubscriber
from faststream_outbox.broker.topic import check_log_tables
from faststream_outbox.envelope import Envelope, checked_queue, checked_text
from faststream_outbox.errors import SessionRequired
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.worker import LogWorker
from faststream_outbox.outcomes.failure import ENDING
from faststream_outbox.outcomes.outcome import RELEASE, Outcome, Retry, Undecided
from faststream_outbox.overview import Unprocessed, as_unprocessed
from faststream_outbox.publish.rows import checked_batch, hints_of, ids_of, insertion
from faststream_outbox.queue.attempt import attempt, attempt_batch
from faststream_outbox.queue.worker import Worker
from faststream_outbox.sql.through import AnySession
from faststream_outbox.sql.wire import Row


def fake_session() -> AsyncSession:
    """A session that does nothing, for tests that publish."""
    session = AsyncMock(spec=AsyncSession)
    session.in_transaction.return_value = True
    return cast("AsyncSession", session)


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
        self._was_running: dict[OutboxSubscriber, bool] = {}

    def feed(self, queue: str, payload: bytes, **fields: Any) -> int | None:
        """Put a row into the table in memory, as another producer would."""
        assert self.fake_client is not None, "feed() works inside `async with`."
        return self.fake_client.feed(queue, payload, **fields)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass for retries and timers; of use with `run_loops=True`."""
        assert self.fake_client is not None, "advance() works inside `async with`."
        self.fake_client.advance(by)

    def create_publisher_fake_subscriber(
        self, broker: OutboxBroker, publisher: OutboxPublisher
    ) -> tuple[OutboxSubscriber, bool]:
        """Somebody who receives what the publisher publishes."""
        for subscriber in _subscribers(self.brokers):
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
        client = FakeOutboxClient(config.outbox_table, config.dlq_table)
        self.fake_client = client
        producer = FakeProducer(broker, self.brokers, run_loops=self.run_loops)
        self._was_running |= {subscriber: subscriber.running for subscriber in _subscribers([broker])}
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
        for subscriber in _subscribers([broker]):
            subscriber.running = self._was_running.get(subscriber, False)

    async def _fake_connect(self, broker: OutboxBroker, *args: Any, **kwargs: Any) -> FakeOutboxClient:  # type: ignore[override]
        return cast("FakeOutboxClient", broker.client)

    @asynccontextmanager
    async def _do_start(self, broker: OutboxBroker) -> AsyncGenerator[OutboxBroker, None]:
        async with super()._do_start(broker) as started:
            workers: dict[OutboxSubscriber, tuple[Worker, Worker | LogWorker | None]] = {}
            if self.run_loops and not self.with_real and not self.connect_only:
                for subscriber in of_queues(_subscribers([broker])):
                    workers[subscriber] = (subscriber.make_worker(), subscriber.worker)
                    subscriber.worker = workers[subscriber][0]
                    await workers[subscriber][0].start()
            try:
                yield started
            finally:
                for subscriber, (worker, former) in workers.items():
                    await worker.stop(timeout=1.0)
                    subscriber.worker = former


class FakeProducer(OutboxProducer):
    """Writes to tables in memory and, unless loops run, handles at once."""

    def __init__(self, broker: OutboxBroker, brokers: Sequence[OutboxBroker], *, run_loops: bool) -> None:
        config = broker.config.broker_config
        super().__init__(config, config.broker_parser, config.broker_decoder)
        self._brokers = brokers
        self._run_loops = run_loops

    def _session(self, cmd: OutboxPublishCommand) -> AnySession | None:
        try:
            return super()._session(cmd)
        except SessionRequired as error:
            msg = f"{error} In a test: session=fake_session(), from faststream_outbox.testing."
            raise SessionRequired(msg) from None

    @property
    def _client(self) -> FakeOutboxClient:
        return cast("FakeOutboxClient", self._config.client)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        session = self._session(cmd)
        rows = checked_batch(rows)
        name, values = insertion(rows)
        ids = ids_of(rows, self._client.tables.answer(name, values))
        written = {row_id for row_id in ids if row_id is not None}
        pending = getattr(session, "outbox_pending", None)
        if isinstance(pending, list):
            # A transactional handler's session: there after its commit, and not before.
            pending += [row for row in self._client.rows if row.id in written]
            self._client.rows[:] = [row for row in self._client.rows if row.id not in written]
            return ids
        if written:
            tables = self._client.tables
            unless_committed(session, lambda: tables.drop(written))
        if self._run_loops:
            for hint in hints_of(rows, ids):
                self._client.wakeups.tell(hint)
        else:
            await self._handle([row for row in self._client.rows if row.id in written])
        return ids

    async def _append(self, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]) -> list[int | None]:
        session = self._session(cmd)
        check_log_tables(self._config.log_tables)
        rows = self._client.log.append([as_topic_message(each) for each in envelopes], cmd.on_duplicate)
        pending = getattr(session, "topics_pending", None)
        if isinstance(pending, list):
            pending += rows
            return [row[1] for row in rows]
        log = self._client.log
        log.keep(rows)
        positions = {row[1] for row in rows}
        unless_committed(session, lambda: log.drop(positions))
        await self._deliver(rows)
        return [row[1] for row in rows]

    async def _deliver(self, rows: Sequence[Row]) -> None:
        failures: list[BaseException] = []
        for subscriber in readers(_subscribers(self._brokers)):
            try:
                await deliver(rows, subscriber)
                await self._handle_committed()
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below: the other groups read the message all the same
                failures.append(error)
        if failures:
            raise failures[0]

    async def _handle_committed(self) -> None:
        """What transactional handlers have published is there after their commit."""
        committed, self._client.committed = self._client.committed, []
        to_topics, self._client.committed_to_topics = self._client.committed_to_topics, []
        await self._handle(committed)
        if to_topics:
            await self._deliver(to_topics)

    async def cancel_timer(self, session: AnySession, queue: str, timer_id: str) -> bool:
        """Delete a timer that nobody holds."""
        values = {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}
        return bool(self._client.tables.answer("cancel_timer", values))

    async def fetch_unprocessed(self, session: AnySession, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        name = "unprocessed" if queue is None else "unprocessed_of_queue"
        return [as_unprocessed(row) for row in self._client.tables.answer(name, {"queue": queue, "limit": limit})]

    async def request(self, cmd: OutboxPublishCommand) -> Taken:
        """Handle at once, and answer with what the handler returned."""
        [row] = checked_batch([await self._envelope(cmd)])
        tables = self._client.tables
        [(row_id,)] = tables.answer(*insertion([row]))
        made = next(kept for kept in tables.rows if kept.id == row_id)
        tables.rows.remove(made)
        for subscriber in of_queues(_subscribers(self._brokers)):
            if made.queue in subscriber.queues:
                claim = self._client.lease(made, subscriber.make_worker())
                async with asyncio.timeout(cmd.timeout):
                    result = await subscriber.process_message([claim] if subscriber.options.batch else claim)
                answer = OutboxPublishCommand(
                    result.body, queue=made.queue, headers=result.headers, correlation_id=result.correlation_id
                )
                [checked] = checked_batch([await self._envelope(answer)])
                tables.answer(*insertion([checked]))
                return self._client.lease(tables.rows.pop(), subscriber.make_worker())
        return await self._request_topic(cmd)

    async def _request_topic(self, cmd: OutboxPublishCommand) -> Delivery:
        for subscriber in readers(_subscribers(self._brokers)):
            if cmd.destination in subscriber.queues:
                rows = MemoryLog().append([as_topic_message(await self._envelope(cmd))])
                async with asyncio.timeout(cmd.timeout):
                    [result] = await deliver(rows, subscriber)
                answer = OutboxPublishCommand(
                    result.body, queue=cmd.destination, headers=result.headers, correlation_id=result.correlation_id
                )
                [row] = MemoryLog().append([as_topic_message(await self._envelope(answer))])
                return Delivery(row, cmd.destination)
        raise SubscriberNotFound

    async def _handle(self, rows: Sequence[MemoryRow]) -> None:
        for subscriber in of_queues(_subscribers(self._brokers)):
            mine = [row for row in rows if row.queue in subscriber.queues and row in self._client.rows]
            if mine and subscriber.options.batch:
                await self._attempt(subscriber, mine)
            for row in [] if subscriber.options.batch else mine:
                await self._attempt(subscriber, [row])

    async def _attempt(self, subscriber: OutboxSubscriber, rows: Sequence[MemoryRow]) -> None:
        """One attempt as the engine makes it, settled as the engine settles it; raises what the handler raised."""
        failures: list[BaseException] = []
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        worker = subscriber.make_worker()
        claims = [self._client.lease(row, worker) for row in rows]
        worker.unsettled.update(claims)

        async def handle(given: Any) -> Any:
            try:
                await subscriber.process_message(given)
            except asyncio.CancelledError as error:
                # A worker would take it for a failure or a lost lease, and go on: the test must not.
                failures.append(error)
                given_up = RELEASE if task.cancelling() > before else Retry(error=error)
                return [given_up] * len(claims) if subscriber.options.batch else given_up
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below, to the test
                failures.append(error)
            decided: list[Outcome] = [claim.decision or Undecided(claim.error) for claim in claims]
            return decided if subscriber.options.batch else decided[0]

        worker.handle = handle
        if subscriber.options.batch:
            outcomes = await attempt_batch(worker, claims, task)
        else:
            outcomes = [await attempt(worker, claims[0], task)]
        ended = [(claim, end) for claim, end in zip(claims, outcomes, strict=True) if end is not None]
        await self._client.settler.write(ended)
        await self._handle_committed()
        if failures:
            raise failures[0]


def _subscribers(brokers: Iterable[OutboxBroker]) -> list[OutboxSubscriber]:
    return [cast("OutboxSubscriber", subscriber) for broker in brokers for subscriber in broker.subscribers]


def of_queues(subscribers: Iterable[OutboxSubscriber]) -> list[OutboxSubscriber]:
    """Those that read queues."""
    return [subscriber for subscriber in subscribers if subscriber.group is None]


def unless_committed(session: Any, take_back: Callable[[], None]) -> None:
    """Where the session is a real one, take back what was published when it rolls back, as the database would."""
    real = getattr(session, "sync_session", session)
    if not isinstance(real, Session):
        return
    # The hooks stay on the session, idle: one cannot be removed while it is called.
    is_committed = is_over = False

    def commit(_: Session) -> None:
        nonlocal is_committed
        is_committed = is_committed or not (is_over or real.in_nested_transaction())

    def end(_: Session, transaction: Any) -> None:
        nonlocal is_over
        if transaction.parent is None and not is_over:
            is_over = True
            if not is_committed:
                take_back()

    event.listen(real, "after_commit", commit)
    event.listen(real, "after_transaction_end", end)


__all__ = ["FakeOutboxClient", "TestOutboxBroker", "fake_session"]
