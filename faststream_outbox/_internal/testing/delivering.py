"""Who gets what is published to a test broker: subscribers at once, or from loops.

`Immediate` makes one attempt at a message as the engine makes it, settled as the engine settles it. What the handler
raised is raised to whoever published, after the other messages had their turn. A queue that is paused and a key that
waits are heeded; nothing comes again. `TopicLoops` reads topics in memory for a test broker with `run_loops=True`, and
hands each subscriber as many messages at a time as it has workers, never two of one slot. Called by the test broker and
its producer.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.message import Received
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.memory.client import FakeOutboxClient
from faststream_outbox._internal.memory.log import MemoryLog, MemoryReader
from faststream_outbox._internal.memory.queues import MemoryQueues
from faststream_outbox._internal.memory.tables import MemoryRow
from faststream_outbox._internal.outcomes.calling import apart, limited
from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.outcome import RELEASE, Outcome, Retry, Undecided
from faststream_outbox._internal.queue.attempt import attempt, attempt_batch
from faststream_outbox._internal.sql.log_rows import ReadMessage


def subscribers(brokers: Iterable[OutboxBroker]) -> list[tuple[FakeOutboxClient, OutboxSubscriber]]:
    """The subscribers, each with the client of its broker."""
    return [
        (cast("FakeOutboxClient", broker.client), cast("OutboxSubscriber", subscriber))
        for broker in brokers
        for subscriber in broker.subscribers
    ]


def reader_of(client: FakeOutboxClient, subscriber: OutboxSubscriber, topic: str) -> MemoryReader:
    """What makes attempts at the messages of a topic for a subscriber; its group begins where the subscriber says."""
    return MemoryReader(
        client.log.group(subscriber.group or "", topic, subscriber._usecase.start),
        name=subscriber.specification.call_name,
        strategy=subscriber.options.retry_strategy,
        events=client.events,
        renderer=client.renderer,
    )


Failures = list[BaseException]


class Raising:
    """Calls a subscriber's handlers, answers as the engine would hear it, and keeps what they raised."""

    def __init__(self, subscriber: OutboxSubscriber, failures: Failures) -> None:
        self._subscriber = subscriber
        self._failures = failures

    async def __call__(self, given: Any) -> Any:
        """The outcome of a message, or those of a batch."""
        is_batch = self._subscriber.options.batch
        claims: Sequence[Received] = given if is_batch else [given]
        outcomes = await self._outcomes(given, claims)
        return outcomes if is_batch else outcomes[0]

    async def _outcomes(self, given: Any, claims: Sequence[Received]) -> list[Outcome]:
        seconds = self._subscriber.options.handler_timeout
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        limit = asyncio.timeout(seconds)
        late: Outcome | None = None
        try:
            async with limit:
                await self._subscriber.process_message(given)
        except asyncio.CancelledError as error:
            # A worker would take it for a failure or a lost lease, and go on: the test must not.
            self._failures.append(error)
            return [RELEASE if task.cancelling() > before else Retry(error=error)] * len(claims)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again later, to the test
            failure = error
            if limit.expired() and isinstance(error, TimeoutError):
                failure = TimeoutError(f"The handler did not end within {seconds:g} s: handler_timeout.")
                failure.__cause__ = error
            self._failures.append(failure)
            if limit.expired() or not self._subscriber.is_manual:
                late = Retry(error=failure)
        return [claim.decision or late or Undecided(claim.error) for claim in claims]


class Immediate:
    """Handles messages for whoever publishes them."""

    def __init__(self, brokers: Sequence[OutboxBroker]) -> None:
        self._brokers = brokers
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: Failures = []

    async def handle(self, tables: MemoryQueues, rows: Sequence[MemoryRow]) -> None:
        """Let subscribers handle those of the rows that may be handled; raises what a handler raised first."""
        failures: Failures = []
        await self._handle(tables, rows, failures)
        if failures:
            raise failures[0]

    async def handle_free(self, tables: MemoryQueues) -> None:
        """Let subscribers handle whatever nobody has had in flight."""
        await self.handle(tables, tables.unbegun())

    def later(self, client: FakeOutboxClient, rows: Sequence[MemoryRow], to_topics: Sequence[ReadMessage]) -> None:
        """Handle as soon as the event loop can: for whoever published without one."""
        self._loop.call_soon_threadsafe(self._begin, client, rows, to_topics)

    def _begin(self, client: FakeOutboxClient, rows: Sequence[MemoryRow], to_topics: Sequence[ReadMessage]) -> None:
        self._tasks.add(self._loop.create_task(self._later(client, rows, to_topics)))

    async def _later(
        self, client: FakeOutboxClient, rows: Sequence[MemoryRow], to_topics: Sequence[ReadMessage]
    ) -> None:
        await self._handle(client.tables, rows, self._late)
        await self._deliver(client.log, [row for row in to_topics if row in client.log.rows], self._late)

    async def finish(self) -> Failures:
        """Wait for what was published without an event loop; what its handlers raised."""
        # What was published just now has its turn first.
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks)
            for task in self._tasks:
                task.result()
        return self._late

    async def _handle(self, tables: MemoryQueues, rows: Sequence[MemoryRow], failures: Failures) -> None:
        for client, subscriber in self._subscribers():
            if client.tables is not tables or subscriber.group is not None:
                continue
            mine = [row for row in rows if row.queue in subscriber.queues]
            most = subscriber.options.most_per_call
            for begin in range(0, len(mine), most):
                await self._attempt(client, subscriber, mine[begin : begin + most], failures)

    async def _attempt(
        self, client: FakeOutboxClient, subscriber: OutboxSubscriber, rows: Sequence[MemoryRow], failures: Failures
    ) -> None:
        tables = client.tables
        blocks = subscriber.options.on_dead == "block"
        free = [row for row in rows if row in tables.rows and row.acquired_token is None]
        ready = [row for row in free if not tables.holds(row, free, held_by_dead=blocks)]
        if not ready:
            return
        task = asyncio.current_task()
        assert task is not None
        worker = subscriber.make_worker()
        worker.handle = apart(Raising(subscriber, failures))
        claims = [client.lease(row, worker) for row in ready]
        worker.unsettled.update(claims)
        if subscriber.options.batch:
            outcomes = await attempt_batch(worker, claims, task)
        else:
            outcomes = [await attempt(worker, claims[0], task)]
        ended = [(claim, end) for claim, end in zip(claims, outcomes, strict=True) if end is not None]
        await client.settler.write(ended)
        self._check_cancelled(task, failures)
        await self._handle_committed(client, failures)
        for queue, key in dict.fromkeys((row.queue, row.key) for row in ready if row.key is not None):
            # What was published for this key meanwhile has waited for it.
            await self._handle(tables, tables.unbegun(queue, key), failures)

    @staticmethod
    def _check_cancelled(task: asyncio.Task[Any], failures: Failures) -> None:
        for error in failures if task.cancelling() else ():
            if isinstance(error, asyncio.CancelledError):
                raise error

    async def _handle_committed(self, client: FakeOutboxClient, failures: Failures) -> None:
        """What transactional handlers have published is there after their commit."""
        committed, client.committed = client.committed, []
        to_topics, client.committed_to_topics = client.committed_to_topics, []
        await self._handle(client.tables, committed, failures)
        await self._deliver(client.log, to_topics, failures)

    async def deliver(self, log: MemoryLog, rows: Sequence[ReadMessage]) -> None:
        """Let one subscriber of each group handle these; raises what a handler raised first."""
        failures: Failures = []
        await self._deliver(log, rows, failures)
        if failures:
            raise failures[0]

    async def _deliver(self, log: MemoryLog, rows: Sequence[ReadMessage], failures: Failures) -> None:
        for client, subscriber, topic in self.readers(log) if rows else ():
            reader = reader_of(client, subscriber, topic)
            call = apart(Raising(subscriber, failures))
            hold = subscriber.options.on_dead == "block"
            if subscriber.options.batch:
                await reader.read_batch(list(reader.group.ready(hold=hold, only=rows)), call)
            else:
                # One by one: a failure holds those behind it.
                for row in rows:
                    for delivery in list(reader.group.ready(hold=hold, only=[row])):
                        await reader.read(delivery, call)
            task = asyncio.current_task()
            assert task is not None
            self._check_cancelled(task, failures)
            await self._handle_committed(client, failures)

    def readers(self, log: MemoryLog) -> list[tuple[FakeOutboxClient, OutboxSubscriber, str]]:
        """One subscriber of each group and topic: a group reads a message once."""
        found: dict[tuple[str, str], tuple[FakeOutboxClient, OutboxSubscriber, str]] = {}
        for client, subscriber in self._subscribers():
            for topic in subscriber.queues if subscriber.group is not None and client.log is log else ():
                found.setdefault((subscriber.group or "", topic), (client, subscriber, topic))
        return [found[place] for place in sorted(found)]

    def _subscribers(self) -> Iterable[tuple[FakeOutboxClient, OutboxSubscriber]]:
        return subscribers(self._brokers)


SCAN_SECONDS = 0.05
"""How often subscribers are looked for that were started meanwhile."""
PATIENCE_SECONDS = 1.0
"""How long what runs may take to finish."""


class TopicLoops:
    """Hands messages of topics to subscribers that run, until it is stopped."""

    def __init__(self, brokers: Sequence[OutboxBroker]) -> None:
        self._brokers = brokers
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reading: dict[asyncio.Task[None], tuple[OutboxSubscriber, str]] = {}

    def wake(self) -> None:
        """Something was published, or time has passed."""
        self._wake.set()

    def start(self) -> None:
        """Begin, unless already running."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Begin nothing more, and let what runs finish for a moment."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if self._reading:
            _, late = await asyncio.wait([*self._reading], timeout=PATIENCE_SECONDS)
            for reading in late:
                reading.cancel()
            if late:
                await asyncio.wait(late)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause = self._begin()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _begin(self) -> float:
        """Begin whatever may begin; seconds until more may."""
        pause = SCAN_SECONDS
        for client, subscriber in subscribers(self._brokers):
            if subscriber.group is None or not subscriber.running:
                continue
            for topic in subscriber.queues:
                reader = reader_of(client, subscriber, topic)
                self._hand_out(subscriber, reader)
                pause = min(pause, max(0.0, reader.group.next_due() or pause))
        return pause

    def _hand_out(self, subscriber: OutboxSubscriber, reader: MemoryReader) -> None:
        options, group = subscriber.options, reader.group
        place = (subscriber, group.topic)
        call = limited(subscriber.handle_batch if options.batch else subscriber.handle, options.handler_timeout)
        while [*self._reading.values()].count(place) < options.max_workers:
            ready = group.ready(hold=options.on_dead == "block")
            found = [each for each, _ in zip(ready, range(options.most_per_call if options.batch else 1), strict=False)]
            if not found:
                return
            work = reader.read_batch(found, call) if options.batch else reader.read(found[0], call)
            # Not when the task has begun: the next one must not get the same.
            group.busy |= {delivery.slot for delivery in found}
            task = asyncio.get_running_loop().create_task(work)
            self._reading[task] = place
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._reading.pop(task, None)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
