"""Pausing and resuming queues through the broker: for every process, not only for this one.

Thin calls of `faststream_outbox.queue.admin.pause`, which knows the queues of the tables; the broker adds those of its
subscribers, started or not.
"""

from typing import TYPE_CHECKING, Any

from faststream_outbox._internal.queue.admin.pause import pause, paused, resume

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.config import OutboxBrokerConfig
    from faststream_outbox._internal.queue.client import OutboxClient

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class PausingMixin(Home):
    """`pause`, `resume` and `paused`."""

    async def pause(self, queue: str, *, create: bool = False) -> bool:
        """Claim no more messages of a queue, in any process, until it is resumed; False if it was paused already.

        What runs goes on, and so does publishing.

        queue: its name, with the prefixes of its routers. One that nobody knows is refused with `UnknownName`.
        create: pause it even so.
        """
        return await pause(self.config.broker_config.client, queue, create=create, known=self._queues())

    async def resume(self, queue: str) -> bool:
        """Claim messages of a queue again, in every process; False if it was not paused.

        queue: its name, with the prefixes of its routers. One that nobody knows is refused with `UnknownName`, as
            long as others are paused.
        """
        return await resume(self.config.broker_config.client, queue, known=self._queues())

    async def paused(self) -> list[str]:
        """The queues that are paused."""
        return await paused(self.config.broker_config.client)

    def _queues(self) -> set[str]:
        return {
            queue
            for subscriber in self.subscribers
            if getattr(subscriber, "group", None) is None
            for queue in getattr(subscriber, "queues", ())
        }
