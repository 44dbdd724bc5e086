"""Dead letters: by queue and error, which is how they come; the newest of those that are chosen; replay and purge.

Putting them back: count, look, choose a pace, start, follow, cancel. What was counted is what is replayed, or deleted
for good: letters that died since have higher ids, and are left out. A purge wants the number typed. Called through the
tables of `screens`.
"""

import asyncio
import math

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.content import Content, decoded, shown
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.replays import Chosen, chosen
from faststream_outbox._internal.queue.dead_letters import DeadLetter, Selection
from faststream_outbox._internal.text import counted, parsed_number
from faststream_outbox.errors import InvalidOption

PAGE = 50
MOST_GROUPS = 200


async def show_failures(page: Page) -> Response:
    """The groups, and a page of letters."""
    _check_letters(page)
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


def _check_letters(page: Page) -> None:
    if page.source.tables.dlq_table is None:
        raise Refused(404, "No dead letters", "This dashboard was made without a dead-letter table.")


async def _newest(page: Page, selection: Selection, before: int | None) -> list[DeadLetter]:
    async with asyncio.timeout(page.source.timeout):
        return await page.source.dead_letters.find(selection, limit=PAGE + 1, before=before)


PACES = (
    ("ramp", "Begin slowly", "1 message a second at first, twice as many every 10 seconds, up to the rate below"),
    ("rate", "At one rate", "As many messages a second as you say below"),
    ("full", "As fast as it goes", "100 in each transaction, one after the other"),
)
RATE = 100.0


async def prepare_replay(page: Page) -> Response:
    """What would be replayed, before anything is."""
    choice = _choice(page)
    return page.render("replay.html", paces=PACES, rate=RATE, **await what_is_meant(page, choice))


async def what_is_meant(page: Page, choice: Chosen) -> dict[str, object]:
    """The frozen set that a selection means now: its newest id, and what is in it."""
    letters = page.source.dead_letters

    async def look() -> tuple[int, list[object]]:
        async with asyncio.timeout(page.source.timeout):
            newest = await letters.newest()
            return newest, [*await letters.summary(choice.selection, up_to=newest)]

    answer = await page.ask(look())
    newest, groups = answer.value or (0, [])
    return {
        "choice": choice,
        "answer": answer,
        "newest": newest,
        "groups": groups,
        "count": sum(group.count for group in groups),
    }


def _choice(page: Page) -> Chosen:
    _check_letters(page)
    query = page.request.query_params
    return chosen(dict(query), tuple(query.getlist("id")))


def frozen(page: Page) -> tuple[Chosen, int, int]:
    """What a form says was counted: the selection, its newest id, and how many."""
    newest, count = (parsed_number(page.form.get(name, "")) for name in ("newest", "count"))
    if newest is None or count is None:
        raise Refused(400, "Count first", "The form does not say what was counted: start from the failures.")
    return chosen(page.form), newest, count


async def start_replay(page: Page) -> Done:
    """Begin a replay."""
    choice, newest, count = frozen(page)
    pace = page.form.get("pace", "full")
    rate = None if pace == "full" else _rate(page.form.get("rate", ""))
    run = page.house.replays.start(
        page.source.dead_letters,
        choice.selection,
        said=choice.fields,
        up_to=newest,
        expected=count,
        rate=rate,
        ramps=pace == "ramp",
        user=page.user,
    )
    target: dict[str, object] = {**choice.fields, "up_to": newest, "count": count, "pace": pace, "rate": rate}
    return Done(f"Replaying {counted(count, 'dead letter')}.", target, page.url("/replays", id=run.id))


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        msg = f"The rate must be a number of messages a second above 0, not {text!r}."
        raise InvalidOption(msg)
    return rate


async def show_replay(page: Page) -> Response:
    """The replays of this process, or one of them."""
    run_id = page.query("id")
    run = None if run_id is None else page.house.replays.get(run_id)
    if run_id is not None and run is None:
        raise Refused(404, "There is no such replay", "It ended long ago, or it runs in another process.")
    return page.render("replays.html", run=run, runs=page.house.replays.all())


async def cancel_replay(page: Page) -> Done:
    """Stop a replay."""
    run_id = page.form.get("run", "")
    run = page.house.replays.get(run_id)
    if run is None or not await page.house.replays.cancel(run_id):
        msg = "This replay does not run any more."
        raise InvalidOption(msg)
    target: dict[str, object] = {"run": run_id, "replayed": run.progress.replayed, "of": run.total}
    return Done(f"Cancelled after {run.progress.replayed:,} of {run.total:,}; these stay in their queues.", target)


async def prepare_purge(page: Page) -> Response:
    """What would be deleted."""
    return page.render("purge.html", **await what_is_meant(page, _choice(page)))


async def start_purge(page: Page) -> Done:
    """Delete them."""
    choice, newest, count = frozen(page)
    if page.form.get("typed", "").replace(",", "").strip() != str(count):
        msg = f"Nothing was deleted: to confirm, type the number {count}."
        raise InvalidOption(msg)
    purged = await page.source.dead_letters.purge(choice.selection, up_to=newest)
    said = f"Deleted {counted(purged, 'dead letter')} for good."
    return Done(said, {**choice.fields, "up_to": newest, "purged": purged}, page.url("/failures"))
