"""Dead letters: grouped by queue and error, which is how they come, and below the newest of those that are chosen."""

import asyncio

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.content import Content, decoded, shown
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Page
from faststream_outbox._internal.dashboard.selecting import chosen
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, Selection

PAGE = 50
MOST_GROUPS = 200


async def show_failures(page: Page) -> Response:
    """The groups, and a page of letters."""
    if page.source.tables.dlq_table is None:
        raise Refused(404, "No dead letters", "This dashboard was made without a dead-letter table.")
    choice = chosen(dict(page.request.query_params))
    before = page.query("before")
    groups = await page.ask(page.source.overview.dead_groups())
    letters = await page.ask(_newest(page, choice.selection, int(before) if before and before.isdecimal() else None))
    found: list[DeadLetter] = letters.value or []
    return page.render(
        "failures.html",
        groups=groups,
        shown_groups=(groups.value or ())[:MOST_GROUPS],
        total=sum(group.count for group in groups.value or ()),
        letters=letters,
        choice=choice,
        older=found[PAGE - 1].id if len(found) > PAGE else None,
        found=found[:PAGE],
        errors={letter.id: error_of(page, letter) for letter in found[:PAGE]},
        queues=sorted({group.queue for group in groups.value or ()}),
        reasons=sorted({group.reason for group in groups.value or ()}),
        before=before,
    )


def error_of(page: Page, letter: DeadLetter) -> str | None:
    """What a letter's error says, as far as the redactor leaves it."""
    error = letter.error_message or letter.last_exception
    content = Content(letter.queue, letter.key, decoded(letter.payload), letter.headers, error, letter.traceback)
    return shown(content, page.house.options.redact, may_read=page.may(Action.READ_BODY)).error


async def _newest(page: Page, selection: Selection, before: int | None) -> list[DeadLetter]:
    async with asyncio.timeout(page.source.timeout):
        return await page.source.dead_letters.find(selection, limit=PAGE + 1, before=before)
