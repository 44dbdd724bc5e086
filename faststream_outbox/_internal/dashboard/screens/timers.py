"""Timers that have not fired, the next one first; each can be taken back."""

from starlette.responses import Response

from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox.errors import InvalidOption

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
