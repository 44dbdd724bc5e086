"""Queues, timers and processes.

How much waits in a queue and how long, with pausing, and the messages that come next. Timers that have not fired, the
next one first; each can be taken back. Processes that are connected: what they do, what they hold, since when. Called
through the tables of `screens`.
"""

import asyncio

from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.publish.put import Unprocessed, fetch_unprocessed
from faststream_outbox.errors import InvalidOption

MOST_QUEUES = 500
MESSAGES = 50

ORDERS = {
    "name": lambda queue: (queue.queue,),
    "ready": lambda queue: (-queue.ready, queue.queue),
    "oldest": lambda queue: (-queue.oldest_ready_seconds, queue.queue),
    "leased": lambda queue: (-queue.leased, queue.queue),
    "scheduled": lambda queue: (-queue.scheduled, queue.queue),
    "dead": lambda queue: (-queue.dead, queue.queue),
}


async def show_queues(page: Page) -> Response:
    """All queues, or those whose name has what was typed."""
    _check(page)
    sample = await page.house.monitor.sample()
    typed, order = page.query("q") or "", page.query("sort") or "name"
    found = [queue for queue in sample.queues if typed.lower() in queue.queue.lower()]
    found.sort(key=ORDERS.get(order, ORDERS["name"]))
    return page.render(
        "queues.html",
        sample=sample,
        queues=found[:MOST_QUEUES],
        more=max(0, len(found) - MOST_QUEUES),
        typed=typed,
        order=order if order in ORDERS else "name",
        history=page.house.monitor.history,
    )


async def show_one(page: Page) -> Response:
    """One queue, and its next messages."""
    _check(page)
    name = page.query("name")
    if name is None:
        raise Refused(400, "Which queue?")
    sample = await page.house.monitor.sample()
    empty = QueueStatus(name, 0, 0, 0, 0, 0.0, is_paused=False, is_estimate=False)
    queue = next((queue for queue in sample.queues if queue.queue == name), empty)
    messages = await page.ask(_next_messages(page, name))
    return page.render(
        "queue.html", sample=sample, queue=queue, messages=messages, most=MESSAGES, history=page.house.monitor.history
    )


async def _next_messages(page: Page, queue: str) -> list[Unprocessed]:
    async with asyncio.timeout(page.source.timeout):
        connection: AsyncConnection
        async with page.source.engine.connect() as connection:
            found = await fetch_unprocessed(connection, page.source.table, queue=queue, limit=MESSAGES)
    return sorted(found, key=lambda message: (message.next_attempt_at, message.id))


def _check(page: Page) -> None:
    if page.source.tables.table is None:
        raise Refused(404, "No queues", "This dashboard was made without a queues' table.")


async def pause(page: Page) -> Done:
    """Claim no more messages of a queue."""
    queue = page.form.get("queue", "")
    changed = await page.source.pause(queue)
    page.house.monitor.forget()
    return Done(f"{queue} is paused{'' if changed else ' already'}.", {"queue": queue})


async def resume(page: Page) -> Done:
    """Claim messages of a queue again."""
    queue = page.form.get("queue", "")
    changed = await page.source.resume(queue)
    page.house.monitor.forget()
    return Done(f"{queue} runs{'' if changed else ' already'}.", {"queue": queue})


MOST_TIMERS = 200


async def show_timers(page: Page) -> Response:
    """The next timers, of a queue or of all."""
    queue = page.query("queue")
    answer = await page.ask(page.source.overview.timers(queue, limit=MOST_TIMERS))
    sample = await page.house.monitor.sample()
    names = sorted({each.queue for each in sample.queues} | {timer.queue for timer in answer.value or ()})
    return page.render(
        "timers.html", answer=answer, timers=answer.value or (), queue=queue, names=names, most=MOST_TIMERS
    )


async def cancel_timer(page: Page) -> Done:
    """Take a timer back, unless a worker has it."""
    queue, timer_id = page.form.get("queue", ""), page.form.get("timer_id", "")
    if not await page.source.cancel_timer(queue, timer_id):
        msg = f"The timer {timer_id!r} of {queue!r} was not cancelled: it has fired, or a worker holds it."
        raise InvalidOption(msg)
    return Done(f"The timer {timer_id} of {queue} will not fire.", {"queue": queue, "timer_id": timer_id})


async def show_workers(page: Page) -> Response:
    """Every process that the server knows a connection of."""
    answer = await page.ask(page.source.overview.processes())
    processes = answer.value or ()
    return page.render(
        "workers.html",
        answer=answer,
        processes=processes,
        # A process may have several clients, each with a worker id and a line of its own.
        count=len({(process.host, process.pid) for process in processes}),
        hosts=len({process.host for process in processes}),
        leases=sum(process.leases for process in processes),
    )
