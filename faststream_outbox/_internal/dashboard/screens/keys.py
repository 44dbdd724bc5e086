"""Keys that wait behind a message that failed, and parked messages: retry them, or skip what will never work."""

from datetime import UTC, datetime

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.content import Content, Shown, decoded, shown
from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.wording import plural
from faststream_outbox._internal.log.deferral.parked import DeferredMessage
from faststream_outbox.errors import InvalidOption

MOST_SHOWN = 100


async def show_keys(page: Page) -> Response:
    """Blocked keys, and below them what is parked."""
    _check_key(page)
    group = page.query("group")
    keys = await page.ask(page.source.overview.blocked_keys(group, limit=MOST_SHOWN))
    parked = await page.ask(page.source.topics.parked.list(group, limit=MOST_SHOWN))
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
    _check_key(page)
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
    found = await page.source.topics.parked.list(group, uri, state=None, limit=1, after=before)
    return next((each for each in found if each.position == position), None)


def _check_key(page: Page) -> None:
    if page.source.tables.log_tables is None:
        raise Refused(404, "No topics", "This dashboard was made without the topics' tables.")


def _named_key(page: Page) -> tuple[str, str, int]:
    query = page.request.query_params
    position = query.get("position", "")
    if not (position.isdecimal() and len(position) < 19):
        raise Refused(400, "Which message?", "A position is a number.")
    return query.get("group", ""), query.get("uri", ""), int(position)


async def prepare_skip(page: Page) -> Response:
    """What would be ended without being handled."""
    _check_key(page)
    group, uri, position = _named_key(page)
    answer = await page.ask(_found(page, group, uri, position))
    if answer.problem is None and answer.value is None:
        raise Refused(404, "It does not wait any more", "It was handled, retried or skipped since.")
    return page.render("skip.html", answer=answer, deferred=answer.value, group=group, uri=uri, position=position)


def _of_form(page: Page) -> tuple[str, str, int]:
    position = page.form.get("position", "")
    if not (position.isdecimal() and len(position) < 19):
        raise Refused(400, "Which message?", "A position is a number.")
    return page.form.get("group", ""), page.form.get("uri", ""), int(position)


async def retry(page: Page) -> Done:
    """Let one parked message run again, or all of a group."""
    target: dict[str, object]
    if page.form.get("all") == "yes":
        group, uri = page.form.get("group", ""), page.form.get("uri", "")
        changed = await page.source.topics.parked.retry(group, uri)
        target = {"group": group, "uri": uri, "positions": list(changed[:MOST_SHOWN]), "count": len(changed)}
    else:
        group, uri, position = _of_form(page)
        changed = await page.source.topics.parked.retry(group, uri, positions=[position])
        target = {"group": group, "uri": uri, "position": position}
    if not changed:
        msg = "Nothing to retry: it is not parked any more."
        raise InvalidOption(msg)
    page.house.monitor.forget()
    return Done(f"{plural(len(changed), 'message')} of {group or 'the group'} will run again.", target)


async def skip(page: Page) -> Done:
    """End a message that waits, without handling it."""
    group, uri, position = _of_form(page)
    if not await page.source.topics.parked.skip(group, position, uri=uri):
        msg = f"Position {position} does not wait in {group!r} any more."
        raise InvalidOption(msg)
    page.house.monitor.forget()
    target: dict[str, object] = {"group": group, "uri": uri, "position": position}
    return Done(
        f"Position {position} is skipped; {group or 'the group'} goes on without it.", target, page.url("/keys")
    )
