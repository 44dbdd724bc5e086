"""`dead list`, `dead groups` and `dead show`: what failed for good, and why."""

from dataclasses import replace
from typing import Annotated

import typer

from faststream_outbox._internal.cli.exits import Answer, Exit, Refusal
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Full, Limit
from faststream_outbox._internal.cli.views.dead import error_grid, letter_grid, letter_view
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, Selection
from faststream_outbox._internal.queue.admin.pause import check_known
from faststream_outbox.errors import UnknownName

Id = Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="The dead letter's id.")]


async def list_letters(
    here: Here,
    selection: Selection,
    limit: Limit = 20,
    before: Annotated[int | None, typer.Option(min=1, max=2**63 - 1, help="Older than this id: the next page.")] = None,
) -> Answer:
    """Dead letters, the newest first."""
    found = await here.dead_letters.find(_all_unless_said(selection), limit=limit, before=before)
    if not found:
        await explain_nothing(here, selection)
        return Answer(found, [letter_grid(found)], Exit.NOTHING if _says_something(selection) else Exit.FINE)
    return Answer(found, [letter_grid(found)])


async def groups(here: Here, queue: Annotated[str | None, typer.Argument(help="Only of this queue.")] = None) -> Answer:
    """Dead letters that failed alike, the most first."""
    found = await here.dead_letters.groups(queue)
    if queue is not None and not found:
        await check_known(here.client, queue)
    return Answer(found, [error_grid(found)])


async def show(here: Here, id: Id, full: Full = False) -> Answer:
    """One dead letter, with its error and its body."""
    letter = await one_letter(here, id)
    return Answer(letter, letter_view(letter, is_full=full))


async def one_letter(here: Here, id: int) -> DeadLetter:
    """The dead letter of an id, or a refusal."""
    for letter in await here.dead_letters.find(Selection(ids=[id]), limit=1):
        return letter
    msg = f"No dead letter {id} is there. `dead list` has the ids; `show` finds messages by theirs."
    raise Refusal(msg, Exit.NOTHING)


async def explain_nothing(here: Here, selection: Selection) -> None:
    """Raise `UnknownName` where a name was probably mistyped, that being why nothing matches."""
    if selection.queue is not None:
        await check_known(here.client, selection.queue)
    if selection.error_type is not None:
        error = selection.error_type
        known = [group.error_type for group in await here.dead_letters.groups() if group.error_type is not None]
        if known and error not in known:
            msg = f"No dead letter has the error {error!r}; {nearest(error, known, 'error')}"
            raise UnknownName(msg)


def _says_something(selection: Selection) -> bool:
    return replace(selection, everything=False) != Selection()


def _all_unless_said(selection: Selection) -> Selection:
    return replace(selection, everything=True)
