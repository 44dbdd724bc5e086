"""Groups of topics, and the keys that wait in them.

How far behind a group is, who reads which slots, and what operators do with it: pause, seek, delete. Keys wait behind a
message that failed; parked messages are retried, or skipped if they will never work. Called through the tables of
`screens`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.content import Content, Shown, decoded, shown
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.source import INVALID, describe
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.log.admin.positions import Place
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.text import counted, parsed_cursor, parsed_id, parsed_moment, parsed_number
from faststream_outbox.errors import InvalidOption, UnknownName

PLACES = (
    ("latest", "The end", "Skip everything that is unread. Only what is published from now on is read."),
    ("earliest", "The beginning", "Read everything again that retention has kept."),
    ("time", "A time", "Read again, or skip, to the first message published at this time (UTC)."),
    ("event", "A message", "The message with this event_id is the next one."),
)


async def show_groups(page: Page) -> Response:
    """All groups, and the transactions that keep gaps open."""
    _check_topics(page)
    sample = await page.house.monitor.sample()
    gaps = await page.ask(page.source.overview.gaps())
    typed = page.query("q") or ""
    found = [group for group in sample.groups if typed.lower() in f"{group.group} {group.uri}".lower()]
    return page.render(
        "groups.html", sample=sample, groups=found, gaps=gaps, typed=typed, history=page.house.monitor.history
    )


async def show_group(page: Page) -> Response:
    """One group and its slots."""
    group, uri = _named_group(page)
    status = await _status(page, group, uri)
    slots = await page.ask(page.source.overview.slots(group, uri))
    owners = sorted({slot.owner_id for slot in slots.value or () if slot.owner_id is not None})
    return page.render(
        "group.html",
        status=status,
        slots=slots,
        owners={owner: number % 6 for number, owner in enumerate(owners)},
        history=page.house.monitor.history,
    )


def _check_topics(page: Page) -> None:
    if page.source.tables.log_tables is None:
        raise Refused(404, "No topics", "This dashboard was made without the topics' tables.")


def _named_group(page: Page) -> tuple[str, str]:
    _check_topics(page)
    # The group without a name is one too.
    return page.request.query_params.get("group", ""), page.request.query_params.get("uri", "")


async def _status(page: Page, group: str, uri: str) -> GroupStatus:
    try:
        found = await page.source.overview.groups(group)
    except UnknownName as error:
        raise Refused(404, "There is no such group", str(error)) from None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said on the screen
        code = 400 if isinstance(error, INVALID) else 503
        raise Refused(code, "No answer about this group", describe(error)) from None
    for status in found:
        if status.uri == uri:
            return status
    raise Refused(404, "There is no such group")


async def prepare_seek(page: Page) -> Response:
    """Where a group stands, and where it may go."""
    group, uri = _named_group(page)
    status = await _status(page, group, uri)
    to = page.query("to")
    return page.render("seek.html", status=status, places=PLACES, to=to, moment=page.query("moment") or "")


async def seek(page: Page) -> Done:
    """Put a group elsewhere."""
    form = page.form
    group, uri, to = form.get("group", ""), form.get("uri", ""), form.get("to", "")
    _check_typed(page, group, "Nothing was changed")
    place = _place(to, form)
    cursor = await page.source.seek(place, group, uri)
    page.house.monitor.forget()
    target: dict[str, object] = {"group": group, "uri": uri, "to": str(place), "cursor": tuple(cursor)}
    said = f"{group or 'The group'} goes on behind tick {cursor.tick}, position {cursor.position}."
    return Done(said, target, page.url("/group", group=group, uri=uri))


def _place(to: str, form: Mapping[str, str]) -> Place:
    if to in ("earliest", "latest"):
        return to
    found: Place | None = None
    if to == "time":
        found = parsed_moment(form.get("moment", ""))
    elif to == "event":
        event_id = parsed_id(form.get("event_id"))
        found = event_id if isinstance(event_id, UUID) else None
    elif to == "cursor" and (cursor := parsed_cursor(f"{form.get('tick')}:{form.get('position')}")) is not None:
        found = Cursor(*cursor)
    if found is None:
        msg = "Say where to: the beginning, the end, a time such as 2026-03-01T12:30, or the event_id of a message."
        raise InvalidOption(msg)
    return found


async def prepare_delete(page: Page) -> Response:
    """What would be forgotten with a group."""
    group, uri = _named_group(page)
    return page.render("delete.html", status=await _status(page, group, uri))


async def delete(page: Page) -> Done:
    """Forget a group."""
    group, uri, is_forced = page.form.get("group", ""), page.form.get("uri", ""), page.form.get("force") == "yes"
    _check_typed(page, group, "Nothing was deleted")
    ended = await page.source.outbox.groups.delete(group, uri, force=is_forced)
    page.house.monitor.forget()
    target: dict[str, object] = {"group": group, "uri": uri, "force": is_forced, "ended": ended}
    return Done(
        f"{group or 'The group'} is deleted, with {ended:,} messages that it had deferred.", target, page.url("/groups")
    )


def _check_typed(page: Page, group: str, consequence: str) -> None:
    if page.form.get("typed", "").strip() != group.strip():
        msg = f"{consequence}: to confirm, type the group's name, {group!r}."
        raise InvalidOption(msg)


async def pause(page: Page) -> Done:
    """Read no more messages of a group."""
    group, uri = page.form.get("group", ""), page.form.get("uri", "")
    changed = await page.source.outbox.groups.pause(group, uri)
    page.house.monitor.forget()
    return Done(f"{group or 'The group'} is paused{'' if changed else ' already'}.", {"group": group, "uri": uri})


async def resume(page: Page) -> Done:
    """Read a group again."""
    group, uri = page.form.get("group", ""), page.form.get("uri", "")
    changed = await page.source.outbox.groups.resume(group, uri)
    page.house.monitor.forget()
    return Done(f"{group or 'The group'} is read{'' if changed else ' already'}.", {"group": group, "uri": uri})


MOST_SHOWN = 100


async def show_keys(page: Page) -> Response:
    """Blocked keys, and below them what is parked."""
    _check_topics(page)
    group = page.query("group")
    keys = await page.ask(page.source.overview.blocked_keys(group, limit=MOST_SHOWN))
    parked = await page.ask(page.source.outbox.parked.list(group, limit=MOST_SHOWN))
    sample = await page.house.monitor.sample()
    return page.render(
        "keys.html",
        errors={(each.group, each.uri, each.position): _content(page, each).error for each in parked.value or ()},
        # Without its message no redactor can judge an error.
        has_redactor=page.house.options.redact is not None,
        keys=keys,
        parked=parked,
        group=group,
        names=sorted({status.group for status in sample.groups}),
        most=MOST_SHOWN,
    )


async def show_key(page: Page) -> Response:
    """One message that waits in a group, with its error and what it says."""
    _check_topics(page)
    group, uri, position = _named_key(page)
    answer = await page.ask(_found(page, group, uri, position))
    if answer.problem is None and answer.value is None:
        raise Refused(404, "It does not wait any more", "It was handled, retried or skipped since.")
    deferred: DeferredMessage | None = answer.value
    content = None if deferred is None else _content(page, deferred)
    return page.render(
        "parked.html", answer=answer, deferred=deferred, content=content, group=group, uri=uri, position=position
    )


def _content(page: Page, deferred: DeferredMessage) -> Shown:
    """What it says, as far as the redactor leaves it."""
    message = deferred.message
    body = None if message is None else message.payload
    metadata = {} if message is None else message.metadata
    content = Content(deferred.key, deferred.key, decoded(body), metadata, deferred.error_message, deferred.traceback)
    return shown(content, page.house.options.redact, may_read=page.may(Action.READ_BODY))


async def _found(page: Page, group: str, uri: str, position: int) -> DeferredMessage | None:
    """The message at a position, whatever it waits for."""
    now = datetime.now(UTC)
    before = DeferredMessage(
        group, uri, position - 1, 0, "", "parked", 0, None, None, now, None, None, None, message=None
    )
    found = await page.source.outbox.parked.list(group, uri, state=None, limit=1, after=before)
    return next((each for each in found if each.position == position), None)


def _named_key(page: Page) -> tuple[str, str, int]:
    query = page.request.query_params
    return query.get("group", ""), query.get("uri", ""), _position(query)


async def prepare_skip(page: Page) -> Response:
    """What would be ended without being handled."""
    _check_topics(page)
    group, uri, position = _named_key(page)
    answer = await page.ask(_found(page, group, uri, position))
    if answer.problem is None and answer.value is None:
        raise Refused(404, "It does not wait any more", "It was handled, retried or skipped since.")
    return page.render("skip.html", answer=answer, deferred=answer.value, group=group, uri=uri, position=position)


def _of_form(page: Page) -> tuple[str, str, int]:
    return page.form.get("group", ""), page.form.get("uri", ""), _position(page.form)


def _position(fields: Mapping[str, str]) -> int:
    position = parsed_number(fields.get("position", ""))
    if position is None:
        raise Refused(400, "Which message?", "A position is a number.")
    return position


async def retry(page: Page) -> Done:
    """Let one parked message run again, or all of a group."""
    target: dict[str, object]
    if page.form.get("all") == "yes":
        group, uri = page.form.get("group", ""), page.form.get("uri", "")
        changed = await page.source.outbox.parked.retry(group, uri)
        target = {"group": group, "uri": uri, "positions": list(changed[:MOST_SHOWN]), "count": len(changed)}
    else:
        group, uri, position = _of_form(page)
        changed = await page.source.outbox.parked.retry(group, uri, positions=[position])
        target = {"group": group, "uri": uri, "position": position}
    if not changed:
        msg = "Nothing to retry: it is not parked any more."
        raise InvalidOption(msg)
    page.house.monitor.forget()
    return Done(f"{counted(len(changed), 'message')} of {group or 'the group'} will run again.", target)


async def skip(page: Page) -> Done:
    """End a message that waits, without handling it."""
    group, uri, position = _of_form(page)
    if not await page.source.outbox.parked.skip(group, position, uri=uri):
        msg = f"Position {position} does not wait in {group!r} any more."
        raise InvalidOption(msg)
    page.house.monitor.forget()
    target: dict[str, object] = {"group": group, "uri": uri, "position": position}
    return Done(
        f"Position {position} is skipped; {group or 'the group'} goes on without it.", target, page.url("/keys")
    )
