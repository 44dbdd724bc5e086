"""Deleting dead letters for good: what was counted, and only after the number was typed."""

from starlette.responses import Response

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.screens.replay import counted, frozen
from faststream_outbox._internal.dashboard.selecting import chosen
from faststream_outbox._internal.dashboard.wording import plural
from faststream_outbox.errors import InvalidOption


async def prepare_purge(page: Page) -> Response:
    """What would be deleted."""
    if page.source.tables.dlq_table is None:
        raise Refused(404, "No dead letters", "This dashboard was made without a dead-letter table.")
    query = page.request.query_params
    return page.render("purge.html", **await counted(page, chosen(dict(query), tuple(query.getlist("id")))))


async def start_purge(page: Page) -> Done:
    """Delete them."""
    choice, newest, count = frozen(page)
    if page.form.get("typed", "").replace(",", "").strip() != str(count):
        msg = f"Nothing was deleted: to confirm, type the number {count}."
        raise InvalidOption(msg)
    purged = await page.source.dead_letters.purge(choice.selection, up_to=newest)
    said = f"Deleted {plural(purged, 'dead letter')} for good."
    return Done(said, {**choice.fields, "up_to": newest, "purged": purged}, page.url("/failures"))
