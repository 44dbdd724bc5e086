"""A worker: so many members of a group, or of several, in this process, each handling its own slots in order.

What the broker's subscribers run. The handler gets a delivery, or a batch of them, and answers with
outcomes; what it decides in its own transaction is settled there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.consumer import Consumer
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.outcomes.apart import apart
from faststream_outbox._internal.outcomes.outcome import Outcome

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
        self.consumers = [
            Consumer(Reader(client, group, options, name=name), all_at_once if batch else one_by_one)
            for group in ([groups] if isinstance(groups, Group) else groups)
            for _ in range(members)
        ]

    async def start(self) -> None:
        """Begin to consume."""
        await Consumer.start_all(self.consumers)

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what is in flight, give the slots back, and consume no more.

        Called from a handler of its own it returns at once, and the worker stops when that has ended.
        """
        if self._stopping is None or self._stopping.done():
            for consumer in self.consumers:
                consumer.reader.is_stopping = True
            self._stopping = asyncio.get_running_loop().create_task(self._stop(timeout))
            self._client.ending.add(self._stopping)
            self._stopping.add_done_callback(self._client.ending.discard)
        if not any(consumer.is_current for consumer in self.consumers):
            await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float | None) -> None:
        await asyncio.gather(*(consumer.stop(timeout) for consumer in self.consumers))
