"""A consumer: one reader that handles what it reads until it is stopped.

Waits for ticks, for waiting messages to fall due, and for slots to change hands; polls as well, so that a
lost wake-up costs a moment and never a message. A failing connection makes it pause and try again. When
it stops, the message in hand is finished, what is done is written, and its slots are free at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from faststream_outbox.events import table as told
from faststream_outbox.log.batch import Batch
from faststream_outbox.log.handling import Handling
from faststream_outbox.log.reader import Reader
from faststream_outbox.service import PATIENCE, Service, pause_after, unbroken

HandleBatch = Callable[[Handling], Awaitable[None]]


class Consumer:
    """Reads and handles in the background."""

    def __init__(self, reader: Reader, handle: HandleBatch) -> None:
        self.reader = reader
        self._handle = handle
        self._service = Service(f"outbox consumer {reader.name}", self.run, self._crashed)
        self._finished = asyncio.Event()
        reader.is_alive = lambda: self._service.is_running

    @property
    def is_current(self) -> bool:
        """Whether this is called from a handler of its own."""
        return self._service.is_current

    async def enter(self) -> None:
        """Become a member of the group, as far as the database answers."""
        try:
            await self.reader.enter()
        except Exception as error:  # noqa: BLE001 - told, and tried again once it runs
            self.reader.client.events.emit(told.ConnectionLost("joining", error))

    async def start(self) -> None:
        """Begin to consume, unless already running."""
        self.reader.is_stopping, self.reader.is_unsettled = False, True
        self._finished.clear()
        await self.reader.client.attach(self.reader)
        self._service.start()

    async def stop(self, timeout: float | None = None) -> None:
        """Finish the message in hand, give the slots back, and consume no more; waits so long at most."""
        reader = self.reader
        reader.is_stopping = True
        reader.wake.set()
        if self._service.is_running and timeout != 0:
            try:
                async with asyncio.timeout(timeout):
                    await self._finished.wait()
            except TimeoutError:
                event = told.DrainTimedOut(reader.name, timeout or 0.0, 1)
                reader.client.events.emit(event)
        await self._service.stop()
        await reader.client.detach(reader)

    async def run(self) -> None:
        """Consume until stopped."""
        # Also after a crash, which has ended the run before.
        self._finished.clear()
        reader = self.reader
        failures = 0
        try:
            while not reader.is_stopping:
                try:
                    batch = await self._next()
                    if batch is not None:
                        await self._handle(Handling(reader, batch))
                    failures = 0
                except Exception as error:  # noqa: BLE001 - told, and tried again
                    failures += 1
                    reader.is_unsettled = True
                    reader.client.events.emit(told.ConnectionLost("reading", error))
                    await asyncio.sleep(pause_after(failures))
        finally:
            await unbroken(self._leave())
            self._finished.set()

    async def _next(self) -> Batch | None:
        reader = self.reader
        if reader.is_unsettled:
            await reader.join()
        batch = await reader.next_batch()
        if batch is not None or reader.is_stopping:
            return batch
        await reader.write_progress()
        return await self._wait()

    async def _wait(self) -> Batch | None:
        reader = self.reader
        due = reader.blocked.next_due()
        pause = reader.options.poll_interval
        if due is not None:
            pause = max(0.0, min(pause, due - asyncio.get_running_loop().time()))
        try:
            async with asyncio.timeout(pause):
                await reader.wake.wait()
            reader.wake.clear()
            return None
        except TimeoutError:
            # Nobody called: look for oneself.
            return await reader.next_batch(is_idle=True)

    async def _leave(self) -> None:
        try:
            # A server that does not answer must not stop anybody from stopping.
            async with asyncio.timeout(PATIENCE):
                await self.reader.leave()
        except Exception as error:  # noqa: BLE001 - the leases end by themselves
            self.reader.client.events.emit(told.ConnectionLost("leaving", error))

    @staticmethod
    async def start_all(consumers: Sequence["Consumer"]) -> None:
        """Start members of one group together: each takes its share, and none has to give it up again."""
        for consumer in consumers:
            await consumer.enter()
        for consumer in consumers:
            await consumer.start()

    def _crashed(self, name: str, error: BaseException) -> None:
        self.reader.is_unsettled = True
        self.reader.client.events.emit(told.LoopCrashed(name, error))
