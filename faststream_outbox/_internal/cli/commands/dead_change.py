"""`dead replay`, `dead purge` and `dead edit`: first what would happen, then a question, then it is done.

What dies after the look is not part of it. Ctrl-C ends it after the transaction that runs; what went back, went back.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from faststream_outbox._internal.cli.asking import agreed, edited
from faststream_outbox._internal.cli.blocks import Block, Body, Quoted, Said
from faststream_outbox._internal.cli.commands import dead_find
from faststream_outbox._internal.cli.exits import Answer, Exit, Refusal
from faststream_outbox._internal.cli.following import following
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import DryRun, Rate, Yes
from faststream_outbox._internal.cli.shown import counted, mapping
from faststream_outbox._internal.cli.views.dead import EMPTY, plan_view, purge_view, replay_view
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, ErrorGroup, Replay, Selection
from faststream_outbox._internal.reindented import compact, is_json, reindented


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
    id: dead_find.Id,
    payload: Annotated[str | None, typer.Option(help="The new body, as text.")] = None,
    payload_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with the new body; - is the standard input.")
    ] = None,
    headers: Annotated[str | None, typer.Option(metavar="JSON", help="The new headers, as a JSON object.")] = None,
    replay: Annotated[bool, typer.Option(help="Put it back afterwards, or only change it.")] = True,
    yes: Yes = False,
) -> Answer:
    """Change the body or the headers of a dead letter, in $EDITOR where neither is given, and put it back."""
    letter = await dead_find.one_letter(here, id)
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
        await dead_find.explain_nothing(here, selection)
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
