"""`dead`: find, group, show, replay, edit and purge dead letters.

`dead replay`, `dead purge` and `dead edit` first show what would happen, then ask, then do it. What dies after the look
is not part of it. Ctrl-C ends it after the transaction that runs; what went back, went back. Added to the application
by `app`; `show` shows the dead letter that a message became in the same way.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from faststream_outbox._internal.cli.asking import agreed, edited, following
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Block, Body, Cell, Exit, Facts, Grid, Quoted, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import DryRun, Full, Limit, Rate, Yes, selecting
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.queue.dead_letters import DeadLetter, ErrorGroup, Replay, Selection
from faststream_outbox._internal.queue.pause import check_known
from faststream_outbox._internal.text import compact, counted, glance, is_json, mapping, reindented
from faststream_outbox.errors import UnknownName

EMPTY = "No dead letter matches."


def letter_grid(letters: Sequence[DeadLetter]) -> Grid:
    """A row for each dead letter."""
    columns = ("id", "queue", "failed", "reason", "error", "message", "attempts", "key", "body")
    rows = [
        (
            str(each.id),
            each.queue,
            each.failed_at,
            each.failure_reason,
            each.error_type,
            _glance(each.error_message),
            each.attempts_count,
            each.key,
            glance(each.payload, 40),
        )
        for each in letters
    ]
    return Grid(columns, rows, empty=EMPTY)


def _glance(text: str | None) -> str | None:
    return None if text is None else glance(text.encode(errors="replace"), 50)


def error_grid(groups: Sequence[ErrorGroup], title: str = "") -> Grid:
    """A row for each way in which dead letters failed alike."""
    columns = ("count", "queue", "reason", "error", "first", "last")
    rows = [
        (each.count, each.queue, each.reason, each.error_type, each.first_failed_at, each.last_failed_at)
        for each in groups
    ]
    return Grid(columns, rows, title, EMPTY)


def letter_view(letter: DeadLetter, *, is_full: bool) -> list[Block]:
    """One dead letter with everything that was kept."""
    pairs: list[tuple[str, Cell]] = [
        ("dead letter", str(letter.id)),
        ("was message", str(letter.original_id)),
        ("message id", str(letter.message_id)),
        ("queue", letter.queue),
        ("key", letter.key),
        ("priority", letter.priority),
        ("timer", letter.timer_id),
        ("attempts", letter.attempts_count),
        ("deliveries", letter.deliveries_count),
        ("created", letter.created_at),
        ("first attempt", letter.first_attempt_at),
        ("last attempt", letter.last_attempt_at),
        ("failed", letter.failed_at),
        ("reason", letter.failure_reason),
        ("error", letter.error_type),
        ("error message", letter.error_message or letter.last_exception),
    ]
    blocks: list[Block] = [Facts([pair for pair in pairs if pair[1] is not None])]
    if letter.traceback:
        blocks.append(Quoted(letter.traceback, "traceback"))
    if letter.headers:
        blocks.append(Quoted(mapping(letter.headers), "headers"))
    return [*blocks, Body(letter.payload, is_full=is_full)]


def plan_view(groups: Sequence[ErrorGroup], title: str) -> list[Block]:
    """What would happen to how many."""
    return [error_grid(groups, title)]


def replay_view(replay: Replay, *, is_interrupted: bool) -> list[Block]:
    """What a replay has done."""
    at_least = "at least " if is_interrupted else ""
    said = f"{at_least}{counted(replay.replayed, 'dead letter')} went back, of {replay.selected:,}."
    blocks: list[Block] = [Said(("Interrupted: " if is_interrupted else "") + said, "plain")]
    if replay.conflicts:
        ids = " ".join(map(str, replay.conflicts[:20])) + (" …" if len(replay.conflicts) > 20 else "")
        number = counted(len(replay.conflicts), "dead letter")
        said = f"{number} could not, because a message with that timer or id is there already: {ids}"
        blocks.append(Said(said, "warning"))
    return blocks


def purge_view(purged: int, *, is_interrupted: bool) -> list[Block]:
    """What a purge has done."""
    said = f"{'Interrupted: at least ' if is_interrupted else ''}{counted(purged, 'dead letter')} deleted."
    return [Said(said)]


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


async def replay(
    here: Here, selection: Selection, rate: Rate = None, dry_run: DryRun = False, yes: Yes = False
) -> Answer:
    """Put dead letters back into their queues, the oldest message first."""
    up_to, groups, total = await _plan(here, selection)
    if dry_run:
        return Answer({"selected": total, "groups": groups}, plan_view(groups, "Would go back"))
    if not _agreed(here, groups, "Would go back", f"Put {counted(total, 'dead letter')} back?", yes=yes):
        return _nothing_done()
    progress = Replay(total)
    with following("going back", total) as follow:

        def note(done: Replay) -> None:
            nonlocal progress
            progress = done
            follow(done.replayed + len(done.conflicts))

        try:
            progress = await here.dead_letters.replay(selection, rate=rate, on_progress=note, up_to=up_to)
        except asyncio.CancelledError:
            return Answer(progress, replay_view(progress, is_interrupted=True), Exit.INTERRUPTED)
    return Answer(
        progress, replay_view(progress, is_interrupted=False), Exit.WRONG if progress.conflicts else Exit.FINE
    )


async def purge(
    here: Here, selection: Selection, rate: Rate = None, dry_run: DryRun = False, yes: Yes = False
) -> Answer:
    """Delete dead letters for good."""
    up_to, groups, total = await _plan(here, selection)
    if dry_run:
        return Answer({"selected": total, "groups": groups}, plan_view(groups, "Would be deleted"))
    if not _agreed(here, groups, "Would be deleted", f"Delete {counted(total, 'dead letter')} for good?", yes=yes):
        return _nothing_done()
    purged = 0
    with following("deleting", total) as follow:

        def note(done: int) -> None:
            nonlocal purged
            purged = done
            follow(done)

        try:
            await here.dead_letters.purge(selection, rate=rate, on_progress=note, up_to=up_to)
        except asyncio.CancelledError:
            done = {"selected": total, "purged": purged}
            return Answer(done, purge_view(purged, is_interrupted=True), Exit.INTERRUPTED)
    return Answer({"selected": total, "purged": purged}, purge_view(purged, is_interrupted=False))


async def edit(
    here: Here,
    id: Id,
    payload: Annotated[str | None, typer.Option(help="The new body, as text.")] = None,
    payload_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with the new body; - is the standard input.")
    ] = None,
    headers: Annotated[str | None, typer.Option(metavar="JSON", help="The new headers, as a JSON object.")] = None,
    replay: Annotated[bool, typer.Option(help="Put it back afterwards, or only change it.")] = True,
    yes: Yes = False,
) -> Answer:
    """Change the body or the headers of a dead letter, in $EDITOR where neither is given, and put it back."""
    letter = await one_letter(here, id)
    new_headers = None if headers is None else _headers(headers)
    body = _given_body(payload, payload_file)
    if body is None and new_headers is None:
        body = _edited_body(letter)
    if body in (None, letter.payload) and new_headers in (None, letter.headers):
        return Answer({"edited": False, "replay": None}, [Said("Nothing is changed, so nothing is done.")], Exit.WRONG)
    plan: list[Block] = [] if body is None else [Body(body, "new body")]
    if new_headers is not None:
        plan.append(Quoted(mapping(new_headers) or "{}", "new headers"))
    question = f"Change dead letter {id} of queue {letter.queue!r}{' and put it back' if replay else ''}?"
    if not yes:
        here.printer.plan(plan)
    if not agreed(question, yes=yes):
        return _nothing_done()
    if not await here.dead_letters.edit(id, payload=body, headers=new_headers):
        msg = f"Dead letter {id} has gone meanwhile: somebody replayed or purged it."
        raise Refusal(msg, Exit.NOTHING)
    if not replay:
        return Answer({"edited": True, "replay": None}, [Said(f"Dead letter {id} is changed.")])
    done = await here.dead_letters.replay(Selection(ids=[id]))
    blocks = [Said(f"Dead letter {id} is changed."), *replay_view(done, is_interrupted=False)]
    return Answer({"edited": True, "replay": done}, blocks, Exit.FINE if done.replayed else Exit.WRONG)


async def _plan(here: Here, selection: Selection) -> tuple[int, Sequence[ErrorGroup], int]:
    """The newest dead letter now, and what is selected; a refusal if that is nothing."""
    up_to = await here.dead_letters.newest()
    groups = await here.dead_letters.summary(selection, up_to=up_to)
    if not groups:
        await explain_nothing(here, selection)
        raise Refusal(EMPTY, Exit.NOTHING)
    return up_to, groups, sum(group.count for group in groups)


def _agreed(here: Here, groups: Sequence[ErrorGroup], title: str, question: str, *, yes: bool) -> bool:
    if not (yes and here.printer.as_json):
        here.printer.plan(plan_view(groups, title))
    return agreed(question, yes=yes)


def _nothing_done() -> Answer:
    return Answer(None, [Said("Nothing is done.")], Exit.WRONG)


def _headers(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"--headers is no JSON: {error}"
        raise Refusal(msg) from None
    if not isinstance(found, dict):
        msg = '--headers is a JSON object, as in --headers \'{"repaired-by": "me"}\'.'
        raise Refusal(msg)
    return found


def _given_body(text: str | None, file: str | None) -> bytes | None:
    if text is not None and file is not None:
        msg = "--payload and --payload-file both give the new body: give one of them."
        raise Refusal(msg)
    if file is not None:
        try:
            return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            msg = f"--payload-file cannot be read: {error}"
            raise Refusal(msg) from error
    return None if text is None else text.encode()


def _edited_body(letter: DeadLetter) -> bytes:
    """What an editor makes of the body: JSON is indented there, and compact again afterwards."""
    try:
        text = letter.payload.decode()
    except UnicodeDecodeError:
        msg = "The body is no text, which an editor would spoil. Give the new one with --payload-file."
        raise Refusal(msg) from None
    indented = reindented(text)
    given = text if indented is None else indented + "\n"
    came = edited(given.encode(), ".txt" if indented is None else ".json").decode(errors="surrogateescape")
    if came == given:
        return letter.payload
    if indented is not None:
        if not is_json(came):
            msg = "The body was JSON and is none any more, so nothing is changed. If that is meant, use --payload-file."
            raise Refusal(msg)
        return letter.payload if compact(came) == compact(text) else compact(came).encode()
    if came.endswith("\n") and not text.endswith("\n"):
        # The editor's own: most end every file with a line break.
        came = came[:-1]
    return came.encode(errors="surrogateescape")


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    dead = typer.Typer(no_args_is_help=True, help="Dead letters: find, group, show, replay, edit, purge.")
    command(dead, "list", selection=selecting)(list_letters)
    command(dead)(groups)
    command(dead)(show)
    command(dead, selection=selecting)(replay)
    command(dead)(edit)
    command(dead, selection=selecting)(purge)
    app.add_typer(dead, name="dead")
