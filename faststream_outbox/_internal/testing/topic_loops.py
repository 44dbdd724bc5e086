"""The loops that read topics in memory, for a test broker with `run_loops=True`.

They hand each subscriber as many messages at a time as it has workers, never two of one slot. Used by the test broker.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.memory.reader import MemoryReader
from faststream_outbox._internal.outcomes.limited import limited
from faststream_outbox._internal.testing.subscribers import reader_of, subscribers

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
