"""A worker: so many members of a group, or of several, in this process, each handling its own slots in order.

The handler gets a delivery, or a batch of them, and answers with outcomes; what it decides in its own transaction is
settled there. Run by the broker's subscribers and by relays.

Each member has a consumer, which handles what its reader reads until it is stopped. It waits for ticks, for waiting
messages to fall due, and for slots to change hands; it polls as well, so that a lost wake-up costs a moment and never a
message. A failing connection makes it pause and try again. When it stops, the message in flight is finished, what is
done is written, and its slots are free at once. `Outbox.run` has consumers without a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.member import Batch
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.outcomes.calling import apart
from faststream_outbox._internal.outcomes.outcome import Outcome
from faststream_outbox._internal.service import PATIENCE, Service, called, retrying, unbroken

RunBatch = Callable[[BatchRun], Awaitable[None]]


class Consumer:
    """Reads and handles in the background."""

    def __init__(self, reader: Reader, client: LogClient, handle: RunBatch) -> None:
        self.member = member = reader.member
        self._reader = reader
        self._client = client
        self._handle = handle
        self._service = Service(f"outbox consumer {member.name}", self.run, self._crashed, self._restored)
        self._finished = asyncio.Event()
        member.is_alive = lambda: self._service.is_running
        member.advanced = member.pulse.beat

    @property
    def is_current(self) -> bool:
        """Whether this is called from a handler of its own."""
        return self._service.is_current

    async def start(self) -> None:
        """Begin to consume, unless already running."""
        self.member.begin()
        self._finished.clear()
        await self._client.attach(self.member)
        self._service.start()

    async def stop(self, timeout: float | None = None) -> None:
        """Finish the message in flight, give the slots back, and consume no more; waits so long at most."""
        member = self.member
        member.stop()
        if self._service.is_running and timeout != 0:
            until = inf if timeout is None else asyncio.get_running_loop().time() + timeout
            if not await called(self._finished, until):
                self._client.events.emit(events.DrainTimedOut(member.name, timeout or 0.0, 1))
        await self._service.stop()
        await self._client.detach(member)

    async def run(self) -> None:
        """Consume until stopped."""
        # Also after a crash, which has ended the run before.
        self._finished.clear()
        try:
            while not self.member.is_stopping:
                await retrying(self._round, self._failed)
                self._client.reading.worked(asyncio.get_running_loop().time(), self)
        finally:
            self._client.reading.left(self)
            self.member.pulse.rest()
            await unbroken(self._leave())
            self._finished.set()

    async def _round(self) -> None:
        """Handle the next batch, or wait for it."""
        member = self.member
        member.pulse.beat()
        if member.is_stopping:
            return
        batch = await self._next()
        if batch is not None:
            with member.handling():
                await self._handle(BatchRun(member, self._reader.settler, batch))

    def _failed(self, error: Exception, _: int) -> None:
        self.member.pulse.beat()
        self.member.doubt()
        self._client.reading.failed(error, asyncio.get_running_loop().time(), self)

    async def _next(self) -> Batch | None:
        reader, member = self._reader, self.member
        if member.is_unsettled:
            await reader.join()
        batch = await reader.next_batch()
        if batch is not None or member.is_stopping:
            return batch
        member.pulse.rest()
        is_idle = await reader.wait()
        member.pulse.beat()
        return await reader.next_batch(is_idle=True) if is_idle else None

    async def _leave(self) -> None:
        """Give the slots back; a server that does not answer must not stop anybody from stopping.

        Members of a process leave one after the other, on one connection: each that has left shows that the server
        answers, and gives the others as much time again.
        """
        client, loop = self._client, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                client.leaving.add(patience)
                try:
                    await self._reader.leave()
                finally:
                    client.leaving.discard(patience)
        except Exception as error:  # noqa: BLE001 - the leases end by themselves
            client.events.emit(events.StatementFailed("leaving", error))
            return
        for other in client.leaving:
            if not other.expired():
                other.reschedule(loop.time() + PATIENCE)

    @staticmethod
    async def start_all(client: LogClient, consumers: Sequence["Consumer"]) -> None:
        """Start members together: each takes its share of its group, and none has to give it up again."""
        if consumers:
            await client.enter([consumer.member for consumer in consumers])
        for consumer in consumers:
            await consumer.start()

    def _crashed(self, name: str, error: BaseException) -> None:
        self.member.doubt()
        self._client.events.emit(events.LoopCrashed(name, error))

    def _restored(self, name: str, seconds: float) -> None:
        self._client.events.emit(events.LoopRestored(name, seconds))


Handle = Callable[[Delivery], Awaitable[Outcome]]
HandleBatch = Callable[[Sequence[Delivery]], Awaitable[Sequence[Outcome]]]


class LogWorker:
    """Members of one group or of several, started and stopped together."""

    def __init__(
        self,
        client: LogClient,
        groups: Group | Sequence[Group],
        handle: Any,
        *,
        options: ReadOptions,
        members: int = 1,
        batch: bool = False,
        name: str = "",
    ) -> None:
        call = apart(handle)

        def one_by_one(batch_run: BatchRun) -> Awaitable[None]:
            return batch_run.run(call)

        def all_at_once(batch_run: BatchRun) -> Awaitable[None]:
            return batch_run.run_whole(call)

        self._client = client
        self._stopping: asyncio.Task[None] | None = None
        self.consumers: list[Consumer] = [
            Consumer(Reader.of(client, group, options, name=name), client, all_at_once if batch else one_by_one)
            for group in ([groups] if isinstance(groups, Group) else groups)
            for _ in range(members)
        ]

    async def start(self) -> None:
        """Begin to consume."""
        await Consumer.start_all(self._client, self.consumers)

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what is in flight, give the slots back, and consume no more.

        Called from a handler of its own it returns at once, and the worker stops when that has ended.
        """
        if self._stopping is None or self._stopping.done():
            for consumer in self.consumers:
                consumer.member.stop()
            self._stopping = asyncio.get_running_loop().create_task(self._stop(timeout))
            self._client.ending.add(self._stopping)
            self._stopping.add_done_callback(self._client.ending.discard)
        if not any(consumer.is_current for consumer in self.consumers):
            await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float | None) -> None:
        await asyncio.gather(*(consumer.stop(timeout) for consumer in self.consumers))
