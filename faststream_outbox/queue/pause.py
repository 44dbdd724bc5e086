"""Pausing a queue: durable, for every process, and heeded by the very next claim.

A pause is a row in the outbox table itself, which every claim looks for. What is already claimed
runs on; publishing goes on. Called by operators through the broker, the CLI and the dashboard.
"""

from faststream_outbox.envelope import checked_queue
from faststream_outbox.queue.client import OutboxClient
from faststream_outbox.sql.through import Rows, through
from faststream_outbox.wakeup.hint import Hint


async def _control(client: OutboxClient, name: str, values: dict[str, str]) -> Rows:
    async with client.engine.begin() as connection:
        opened = await through(connection, client.table)
        return await opened.fetch(opened.sql("control", name), values)


async def pause(client: OutboxClient, queue: str) -> bool:
    """Claim no more messages of the queue; False if it was paused already."""
    return bool(await _control(client, "pause", {"queue": checked_queue(queue)}))


async def resume(client: OutboxClient, queue: str) -> bool:
    """Claim messages of the queue again; False if it was not paused."""
    was_paused = bool(await _control(client, "resume", {"queue": checked_queue(queue)}))
    client.wakeups.tell(Hint(queue, scan=True))
    return was_paused


async def paused(client: OutboxClient) -> list[str]:
    """The queues that are paused."""
    return [str(row[0]) for row in await _control(client, "paused", {})]
