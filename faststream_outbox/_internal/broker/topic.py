"""What topics ask and refuse in the broker: options of their subscribers and publishers, and messages for the log.

An option that means nothing for a topic is refused and not ignored, at the line that registers it; so is what only
queues can do with a message, before any of it is written. `reporting` tells what was published and what could not be.
Called by the registrator and by the producers.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import permutations
from time import perf_counter
from typing import Any
from uuid import UUID

from faststream.exceptions import IncorrectState

from faststream_outbox._internal.broker.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO
from faststream_outbox._internal.broker.response import OutboxPublishCommand, correlation_among
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import Published
from faststream_outbox._internal.log.message import EVENT_ID
from faststream_outbox._internal.log.message import OutboxMessage as TopicMessage
from faststream_outbox._internal.log.options import CRASH_LIMIT, MAX_DEFERRED
from faststream_outbox._internal.log.sharing.slots import SLOTS, checked_group, checked_uri, matches, prefix_of, uri_of
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.errors import InvalidMessage, InvalidOption, InvalidOptionType

WITHOUT_LOG = (
    "Topics need the log's tables and an engine: OutboxBroker(engine, outbox_table=…, "
    "log_tables=make_log_tables(metadata, 'outbox_log'))."
)


def check_log_tables(tables: LogTables | None) -> None:
    """Refuse a topic where there is no table for it, also in tests."""
    if tables is None:
        raise IncorrectState(WITHOUT_LOG)


def checked_topics(topic: object, group: object, queues: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the topics that a group reads: one or several, of which none holds another."""
    if queues:
        msg = f"A subscriber reads queues ({queues!r}) or a topic ({topic!r}), not both: register two."
        raise InvalidOption(msg)
    if group is None:
        msg = f"A subscriber of a topic needs a group: subscriber(topic={topic!r}, group='billing'). Each reads all."
        raise InvalidOptionType(msg)
    checked_group(group)
    if not isinstance(topic, list | tuple):
        return (checked_uri(topic, "topic"),)
    names = tuple(checked_uri(each, "topic") for each in topic)
    if not names:
        msg = "A list of topics has at least one: subscriber(topic=['orders', 'returns'], group='billing')."
        raise InvalidOption(msg)
    for one, other in permutations(names, 2):
        if matches(one, other) or prefix_of(one) == prefix_of(other):
            msg = f"Messages of topic {one!r} would be handled twice: {other!r} holds it already. Leave it out."
            raise InvalidOption(msg)
    return names


def check_only_topics(group: object, start: object, max_deferred: object) -> None:
    """Refuse what means nothing without a topic."""
    for name, value, usual in (("start", start, "earliest"), ("max_deferred", max_deferred, MAX_DEFERRED)):
        if value != usual:
            msg = f"{name}={value!r} is for topics: a queue's message is taken once, whenever it came. Leave it out."
            raise InvalidOption(msg)
    if group is not None:
        msg = f"group={group!r} is for topics: subscriber(topic=…, group={group!r}). Workers share a queue anyway."
        raise InvalidOption(msg)


def check_priority(topic: str | None, priority: int) -> None:
    """Refuse a publisher that every message of would be refused."""
    if topic is not None and priority:
        msg = "A topic takes no priority: every group reads its messages in the order of their commits. Use a queue."
        raise InvalidOption(msg)


def checked_crash_limit(given: int | None, topic: object) -> int:
    """How many processes may die with a message: each costs a topic's slots a lease, but a queue next to nothing."""
    if given is not None:
        return given
    return WorkerOptions().crash_limit if topic is None else CRASH_LIMIT


def check_topic_options(options: WorkerOptions, *, has_hook: bool) -> None:
    """Refuse what a topic does not have."""
    usual = WorkerOptions()
    reasons = {
        "max_deliveries": "count attempts with retry_strategy",
        "on_undecided": "an undecided message is tried again",
        "on_lease_lost": "an outcome without its lease is not written",
        "batch_wait": "a batch is what is there",
    }
    for name, reason in reasons.items():
        if getattr(options, name) != getattr(usual, name):
            msg = f"{name} means nothing for a topic: {reason}."
            raise InvalidOption(msg)
    if has_hook:
        msg = "on_terminal_failure means nothing for a topic: listen to the event Died, and see Outbox.parked."
        raise InvalidOption(msg)
    if options.max_workers > SLOTS:
        msg = f"max_workers of a topic is at most {SLOTS}, the number of its slots, not {options.max_workers}."
        raise InvalidOption(msg)


def headers_of(cmd: OutboxPublishCommand, content_type: str | None, correlation_id: str | None) -> dict[str, Any]:
    """The command's headers, with what the encoded body and the command say besides."""
    headers = dict(cmd.headers or {})
    given = headers.get(CONTENT_TYPE)
    if content_type and given is not None and given != content_type:
        msg = f"The header {CONTENT_TYPE!r} says {given!r}, but the body was encoded as {content_type!r}."
        raise InvalidMessage(msg)
    if content_type:
        headers[CONTENT_TYPE] = content_type
    known = correlation_among(headers)
    if known is not None and correlation_id is not None and known != correlation_id:
        msg = f"correlation_id is {correlation_id!r}, but the header says {known!r}. Give it once."
        raise InvalidMessage(msg)
    if correlation_id is not None:
        headers[CORRELATION_ID] = correlation_id
    if cmd.reply_to:
        headers[REPLY_TO] = cmd.reply_to
    return headers


def topic_message(
    cmd: OutboxPublishCommand,
    payload: bytes,
    content_type: str | None,
    *,
    correlation_id: str | None,
    key: str | None,
    message_id: UUID | None,
) -> TopicMessage:
    """The command with an encoded body, as a message of the log; refuses what only queues can do."""
    metadata = headers_of(cmd, content_type, correlation_id)
    given = {
        "priority": cmd.priority or None,
        "activate_in": cmd.activate_in,
        "activate_at": cmd.activate_at,
        "timer_id": cmd.timer_id,
    }
    for name, value in given.items():
        if value is not None:
            msg = f"A topic takes no {name}: every group reads its messages in the order of their commits. Use a queue."
            raise InvalidMessage(msg)
    if message_id is not None:
        metadata[EVENT_ID] = str(message_id)
    return TopicMessage(uri_of(cmd.destination, key), payload, metadata)


@contextmanager
def reporting(
    events: Events, topic: str, messages: Sequence[TopicMessage]
) -> Generator[Callable[[], None], None, None]:
    """Report messages that could not be written to a topic; gives what reports that they were committed."""
    began = perf_counter()

    def report(error: BaseException | None = None) -> None:
        if Published in events:
            size = sum(len(message.payload) for message in messages)
            events.emit(Published(topic, len(messages), size, perf_counter() - began, error))

    try:
        yield report
    except BaseException as problem:
        report(problem)
        raise
