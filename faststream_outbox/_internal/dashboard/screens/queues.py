"""Queues: how much waits and how long, and pausing; one queue with the messages that come next."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.overview.unprocessed import Unprocessed, fetch_unprocessed

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
            found = await fetch_unprocessed(connection, page.source.queues.table, queue=queue, limit=MESSAGES)
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
