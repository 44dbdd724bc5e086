"""Messages as handlers see them: ack, nack and reject become decisions on the claim.

A decision is not yet written when `ack()` returns: the engine writes it, with many others, after the
handler. The first decision counts. A claim without one is settled by the subscriber's policy.
"""

from collections.abc import Sequence
from typing import Any

from faststream.message import StreamMessage

from faststream_outbox.log.delivery import Delivery
from faststream_outbox.outcomes.outcome import DONE, Dead, Retry
from faststream_outbox.queue.claim import Claim

Taken = Claim | Delivery
"""What the engines hand over: a claimed message of a queue, or a delivered one of a topic."""


class OutboxMessage(StreamMessage[Taken]):
    """One message."""

    async def ack(self) -> None:
        """Done: it leaves the queue, or is behind the group."""
        self.raw_message.decide(DONE)
        await super().ack()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed: try again after `delay` seconds, or as the retry strategy says."""
        self.raw_message.decide(Retry(delay, self.raw_message.error, counts))
        await super().nack()

    async def snooze(self, delay: float) -> None:
        """Not now: come again after `delay` seconds; uses up neither an attempt nor a delivery."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good: a dead letter, or deleted where there is no table for those; parked in a topic."""
        self.raw_message.decide(Dead(error=self.raw_message.error))
        await super().reject()


class OutboxBatchMessage(StreamMessage[Sequence[Taken]]):
    """A batch: a decision on it holds for each message that has none of its own; see `messages`."""

    messages: Sequence[OutboxMessage]

    async def ack(self) -> None:
        """Done with all that are left."""
        for message in self.messages:
            await message.ack()
        await super().ack()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed with all that are left."""
        for message in self.messages:
            await message.nack(delay, counts=counts)
        await super().nack()

    async def snooze(self, delay: float) -> None:
        """Not now, for all that are left."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good with all that are left."""
        for message in self.messages:
            await message.reject()
        await super().reject()


def correlation_of(claim: Taken) -> str:
    """The correlation id that a claim carries, or its own id."""
    value: Any = claim.headers.get("correlation_id")
    return str(value) if value else str(claim.message_id)
