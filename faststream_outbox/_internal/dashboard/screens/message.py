"""One message with everything that is known about it, the search that leads there, and changing a dead letter.

Whoever may edit and may read bodies sees a form in the place of body and headers. A form that cannot be used comes back
with what was typed. A letter that somebody else changed meanwhile is not overwritten. Called through the tables of
`screens`.
"""

from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.content import (
    Content,
    Draft,
    decoded,
    draft,
    new_body,
    new_headers,
    shown,
    version_of,
)
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Again, Done, Page
from faststream_outbox._internal.overview.message import MessageStatus, dead_status
from faststream_outbox._internal.queue.dead_letters import DeadLetter, Selection
from faststream_outbox._internal.text import parsed_id, parsed_number
from faststream_outbox.errors import InvalidOption, OutboxError


async def show(page: Page) -> Response:
    """A message of a queue, or the dead letter that it became."""
    letter_id, asked_for = parsed_id(page.query("letter")), parsed_id(page.query("id"))
    if isinstance(letter_id, int):
        # A dead letter is found by its own id at once; by the message's it is searched for.
        answer = await page.ask(_of_letter(page, letter_id))
    elif asked_for is not None:
        answer = await page.ask(page.source.overview.message(asked_for))
    else:
        raise Refused(400, "Which message?", "An id is a number, or a message's UUID.")
    if answer.problem is None and answer.value is None:
        raise Refused(404, "There is no such message", "It was handled and is gone, or it never was.")
    return render(page, answer.value, problem=answer.problem, form=_form(page, answer.value))


def _form(page: Page, status: MessageStatus | None) -> Draft | None:
    """The letter to be changed, where that is asked for and allowed."""
    letter = None if status is None else status.dead_letter
    if letter is None or page.query("edit") is None:
        return None
    if not (page.may(Action.EDIT) and page.may(Action.READ_BODY)):
        raise Refused(403, "Not allowed", "You may not change dead letters.")
    return draft(letter, page.house.options.redact)


def render(
    page: Page,
    status: MessageStatus | None,
    *,
    problem: str | None = None,
    form: Draft | None = None,
    refused: str | None = None,
) -> Response:
    """The page of a message, or of a letter that is being changed; `refused` is why that was not done."""
    record: Any = None if status is None else status.dead_letter or status.message
    letter = None if status is None else status.dead_letter
    content = None
    if record is not None:
        traceback = None if letter is None else letter.traceback
        error = None if letter is None else letter.error_message or letter.last_exception
        content = shown(
            Content(record.queue, record.key, decoded(record.payload), record.headers, error, traceback),
            page.house.options.redact,
            may_read=page.may(Action.READ_BODY),
            size=len(record.payload),
        )
    return page.render(
        "message.html",
        problem=problem,
        status=status,
        record=record,
        letter=letter,
        section="/queues" if letter is None else "/failures",
        content=content,
        form=form,
        refused=refused,
        trace=None if record is None else trace_address(page.house.options.trace_url, asdict(record)),
    )


async def _of_letter(page: Page, letter_id: int) -> MessageStatus | None:
    found = await page.source.overview.dead_letters(Selection(ids=[letter_id]), limit=1)
    return dead_status(found[0]) if found else None


def trace_address(template: str | None, record: dict[str, Any]) -> str | None:
    """Where the message's trace is, if its headers have what the template wants."""
    if template is None:
        return None
    headers = {str(name).lower(): value for name, value in record["headers"].items()}
    parts = str(headers.get("traceparent", "")).split("-")
    trace_id, span_id = (parts[1], parts[2]) if len(parts) == 4 else ("", "")
    values = {
        "trace_id": trace_id,
        "span_id": span_id,
        "correlation_id": headers.get("correlation_id") or headers.get("correlation-id") or "",
        "message_id": record["message_id"],
        "queue": record["queue"],
        "key": record["key"] or "",
    }
    used = {name: quote(str(value), safe="") for name, value in values.items()}
    if any(f"{{{name}}}" in template and not value for name, value in used.items()):
        return None
    return template.format(**used)


async def find(page: Page) -> Response:
    """To the message with an id, or to the dead letters of a key, or to a queue."""
    text = (page.query("q") or "").strip()
    if parsed_id(text) is not None:
        return RedirectResponse(page.url("/message", id=text), status_code=303)
    names = {queue.queue for queue in (await page.house.monitor.sample()).queues}
    if text in names:
        return RedirectResponse(page.url("/queue", name=text), status_code=303)
    if any(text in name for name in names):
        return RedirectResponse(page.url("/queues", q=text), status_code=303)
    path = "/failures" if page.source.tables.dlq_table is not None else "/queues"
    return RedirectResponse(page.url(path, key=text), status_code=303)


async def save_edit(page: Page) -> Done:
    """Write what was typed."""
    letter_id = parsed_number(page.form.get("letter", ""))
    if letter_id is None:
        raise Refused(400, "Which dead letter?", "Its id is a number.")
    if not page.may(Action.READ_BODY):
        raise Refused(403, "Not allowed", "Who may not read bodies may not change them.")
    letter = await _letter(page, letter_id)
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
