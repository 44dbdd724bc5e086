"""Topics in memory, for tests: what was published, and a delivery of it for each group that reads it.

Sequencing, leases and waiting keys are left to the tests on PostgreSQL: here every message is delivered at
once, in order, to one subscriber of each group, and what its handler raises reaches the test. Used by the
test broker.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.log.append import DuplicateMessage
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.handling import Handling
from faststream_outbox.log.message import OutboxMessage, checked, unique_id
from faststream_outbox.log.slots import matches
from faststream_outbox.sql.through import AnySession
from faststream_outbox.sql.wire import Row

if TYPE_CHECKING:
    from faststream_outbox.broker.subscriber import OutboxSubscriber


class MemoryLog:
    """What was published to topics; `messages` shows what is committed of it."""

    def __init__(self) -> None:
        self.messages: list[OutboxMessage] = []
        self._positions = count(1)

    def append(self, messages: Sequence[OutboxMessage], on_duplicate: str = "error") -> list[Row]:
        """Rows of messages, as the table would have them; not committed yet."""
        now = datetime.now(UTC)
        rows: list[Row] = []
        taken = {unique_id(message.event_id) for message in self.messages} - {None}
        for row in map(checked, messages):
            if row.event_id in taken:
                if on_duplicate == "error":
                    msg = f"Published before, by event_id: {row.given_id}."
                    raise DuplicateMessage(msg)
                continue
            taken |= {row.event_id} - {None}
            position = next(self._positions)
            rows.append(
                (1, position, row.uri, row.slot, row.payload, row.body, row.metadata, row.event_id, now, position)
            )
        return rows

    def keep(self, rows: Iterable[Row]) -> None:
        """Their transaction has committed."""
        self.messages += [Delivery(row, "").message for row in rows]

    def drop(self, positions: set[int]) -> None:
        """Their transaction was rolled back."""
        self.messages[:] = [message for message in self.messages if message.position not in positions]


class UnleasedHandling(Handling):
    """The end of a delivery that nobody else could take over."""

    def __init__(self) -> None:
        """There is no batch and no reader."""

    async def begin_within(self, session: AsyncSession) -> None:
        """Nothing to hold."""
        await session.begin()

    async def settle_within(self, session: AnySession, deliveries: Sequence[Delivery]) -> None:
        """Nothing to write."""

    async def commit(self, session: AsyncSession) -> None:
        """Commit; no answer can be lost."""
        await session.commit()


def readers(subscribers: Iterable["OutboxSubscriber"]) -> list["OutboxSubscriber"]:
    """One subscriber of each group and topic: a group reads a message once."""
    found: dict[tuple[str, str], OutboxSubscriber] = {}
    for subscriber in subscribers:
        for topic in subscriber.queues if subscriber.group is not None else ():
            found.setdefault((subscriber.group or "", topic), subscriber)
    return list(dict.fromkeys(found[place] for place in sorted(found)))


async def deliver(rows: Sequence[Row], subscriber: "OutboxSubscriber") -> list[Any]:
    """Let a subscriber handle what it reads of the rows; raises what its handler raised."""
    deliveries = [Delivery(row, topic) for row in rows for topic in subscriber.queues if matches(row[2], topic)]
    for delivery in deliveries:
        delivery.handling = UnleasedHandling()
    if not deliveries:
        return []
    if subscriber.options.batch:
        return [await subscriber.process_message(deliveries)]
    return [await subscriber.process_message(delivery) for delivery in deliveries]
