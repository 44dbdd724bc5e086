"""Pausing a queue: durable, for every process, and effective from the very next claim.

A pause is a row in the outbox table itself, which every claim checks. What is already claimed
runs on; publishing goes on. A name that neither this process nor the tables know is refused: it is more often
mistyped than of a queue that is yet to come. Called by operators, through the broker too.
"""

from collections.abc import Iterable

from faststream_outbox._internal.envelope import checked_queue
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.sql.statements import column
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import UnknownName

MOST_NAMES = 1000
"""How many names of the table are compared to find the nearest one."""


async def pause(client: OutboxClient, queue: str, *, create: bool = False, known: Iterable[str] = ()) -> bool:
    """Claim no more messages of the queue; False if it was paused already.

    create: pause a queue also if nobody has heard of it yet, instead of raising `UnknownName`.
    known: further names that are known, such as those of subscribers that have not started.
    """
    name = checked_queue(queue)
    if not create:
        await check_known(client, name, known, " To pause a queue that is yet to come: pause(…, create=True).")
    return bool(await client.control("pause", {"queue": name}))


async def resume(client: OutboxClient, queue: str, *, known: Iterable[str] = ()) -> bool:
    """Claim messages of the queue again; False if it was not paused.

    A name that nobody knows is refused while other queues are paused: one of those was meant.

    known: further names that are known, such as those of subscribers that have not started.
    """
    name = checked_queue(queue)
    was_paused = bool(await client.control("resume", {"queue": name}))
    if not was_paused and await paused(client):
        await check_known(client, name, known)
    client.wakeups.tell(Hint(queue, scan=True))
    return was_paused


async def paused(client: OutboxClient) -> list[str]:
    """The queues that are paused."""
    return column(await client.control("paused", {}))


async def check_known(client: OutboxClient, queue: str, known: Iterable[str] = (), hint: str = "") -> None:
    """Raise `UnknownName`, with the nearest name, if neither this process nor the tables know the queue."""
    here = {*known, *client.queues}
    if queue in here or await client.control("known_queue", {"queue": queue}):
        return
    stored = column(await client.control("queues", {"limit": MOST_NAMES}))
    msg = f"No queue {queue!r} is known here or in the table; {nearest(queue, [*here, *stored], 'queue')}{hint}"
    raise UnknownName(msg)
