"""Changing a dead letter on its page before it is replayed: its body, its headers.

Whoever may edit and may read bodies sees the form in the place of the text. A form that cannot be used comes back with
what was typed. A letter that somebody else changed meanwhile is not overwritten.
"""

from dataclasses import replace

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.editing import Draft, draft, new_body, new_headers, version_of
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Again, Done, Page
from faststream_outbox._internal.dashboard.screens.message import render
from faststream_outbox._internal.overview.message import dead_status
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, Selection
from faststream_outbox.errors import InvalidOption, OutboxError


async def save_edit(page: Page) -> Done:
    """Write what was typed."""
    letter_id = page.form.get("letter", "")
    if not (letter_id.isdecimal() and len(letter_id) < 19):
        raise Refused(400, "Which dead letter?", "Its id is a number.")
    if not page.may(Action.READ_BODY):
        raise Refused(403, "Not allowed", "Who may not read bodies may not change them.")
    letter = await _letter(page, int(letter_id))
    form = draft(letter, page.house.options.redact)
    typed = {name: page.form.get(name) for name in ("body", "headers")}
    try:
        if page.form.get("version") != form.version:
            msg = "Somebody changed it since you opened it, so nothing is written. Below is what you typed."
            raise InvalidOption(msg)
        payload = None if form.body is None or typed["body"] is None else new_body(typed["body"], letter)
        headers = None if form.headers is None or typed["headers"] is None else new_headers(typed["headers"], letter)
        if payload is None and headers is None:
            msg = "Nothing is changed, so nothing is written."
            raise InvalidOption(msg)
        if not await page.source.dead_letters.edit(letter.id, payload=payload, headers=headers):
            msg = f"Dead letter {letter.id} has gone meanwhile: somebody replayed or deleted it."
            raise InvalidOption(msg)
    except OutboxError as error:
        raise Again(str(error), _form_again(page, letter, form, typed, str(error))) from error
    changed = [name for name, value in (("body", payload), ("headers", headers)) if value is not None]
    # What it was and what it is, without saying it: an audit is read by more people than bodies are.
    after = await _letter(page, letter.id)
    target: dict[str, object] = {
        "letter": letter.id,
        "queue": letter.queue,
        "message_id": str(letter.message_id),
        "changed": changed,
        "before": form.version,
        "after": version_of(after),
    }
    to_replay = page.form.get("then") == "replay" and page.may(Action.REPLAY)
    to = page.url("/replay", ids=letter.id) if to_replay else page.url("/message", letter=letter.id)
    return Done(f"Changed {' and '.join(changed)} of dead letter {letter.id}.", target, to)


async def _letter(page: Page, letter_id: int) -> DeadLetter:
    if page.source.tables.dlq_table is not None:
        found = await page.source.overview.dead_letters(Selection(ids=[letter_id]), limit=1)
        if found:
            return found[0]
    raise Refused(404, "There is no such dead letter", "It was replayed or deleted.")


def _form_again(page: Page, letter: DeadLetter, form: Draft, typed: dict[str, str | None], said: str) -> Response:
    """The form with what was typed, against the letter as it is now."""
    kept = replace(
        form,
        body=form.body if typed["body"] is None or form.body is None else typed["body"],
        headers=form.headers if typed["headers"] is None or form.headers is None else typed["headers"],
    )
    answer = render(page, dead_status(letter), form=kept, refused=said)
    answer.status_code = 422
    return answer
