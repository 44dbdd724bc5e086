"""Every public way in, with arguments that are right: tests replace one of them at a time by what is not.

An entry is called with all of its arguments by name. What writes, writes in a transaction that is never committed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession

import faststream_outbox as package
from faststream_outbox import OutboxBroker
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.schema.log_tables import make_log_tables
from faststream_outbox.dashboard import BasicAuth, BearerAuth, hide_fields, make_dashboard
from faststream_outbox.doctor import Doctor, Limits
from faststream_outbox.health import health, health_routes
from faststream_outbox.log import Outbox, OutboxMessage, Token, slot_of
from faststream_outbox.overview import Overview, fetch_unprocessed
from faststream_outbox.publish import cancel_timer, cancel_timer_sync, publish, publish_sync
from faststream_outbox.queue import Dead, DeadLetters, OutboxClient, Retry, Selection, Worker, WorkerOptions
from tests.promises.entry import Entry, Nowhere, Place, defaults, own
from tests.promises.telling_entries import telling

DAY = timedelta(days=1)
ALL = Selection(everything=True)


def entries(place: Place) -> Iterator[Entry]:
    """All of them."""
    yield from descriptions(place)
    yield from publishing(place)
    yield from operating(place)
    yield from topics(place)
    yield from telling(place)


def descriptions(place: Place) -> Iterator[Entry]:
    """What is said once: tables, strategies, options, brokers."""
    for name in ("make_outbox_table", "make_dlq_table", "make_inbox_table"):
        make = getattr(package, name)
        yield Entry(name, lambda table_name, make=make: make(MetaData(), table_name), {"table_name": "t"})
        yield Entry(name, make, {"metadata": MetaData()})
    names: dict[str, Any] = {"outbox_table": "o", "offsets_table": "p", "partitioned": False}
    yield Entry("make_log_tables", lambda **given: make_log_tables(MetaData(), **given), names)
    named: dict[str, Any] = {"table_name": "o", "schema": "s"}
    limits = {"vacuum_threshold": 1, "insert_threshold": 1, "vacuum_cost_delay": 1.0, "vacuum_cost_limit": 100}
    yield Entry("outbox_autovacuum_ddl", package.outbox_autovacuum_ddl, named | limits)
    yield Entry("outbox_autovacuum_rollback_ddl", package.outbox_autovacuum_rollback_ddl, named)
    bounds = {"jitter_factor": 0.1, "max_attempts": 3, "max_total_delay_seconds": 1.0}
    yield Entry("ConstantRetry", package.ConstantRetry, bounds | {"delay_seconds": 1.0})
    yield Entry("LinearRetry", package.LinearRetry, bounds | {"initial_delay_seconds": 1.0, "step_seconds": 1.0})
    grown = {"initial_delay_seconds": 1.0, "multiplier": 2.0, "max_delay_seconds": 3.0}
    yield Entry("ExponentialRetry", package.ExponentialRetry, bounds | grown)
    days = dict.fromkeys(("messages", "dead_letters", "group_expires_after", "every"), DAY)
    yield Entry("Retention", package.Retention, days)
    yield Entry("WorkerOptions", WorkerOptions, defaults(WorkerOptions) | {"batch": True})
    yield Entry("Limits", Limits, defaults(Limits))
    yield Entry("Dead", Dead, defaults(Dead))
    yield Entry("Retry", Retry, defaults(Retry))
    yield Entry("Selection", Selection, defaults(Selection))
    yield Entry("BasicAuth", BasicAuth, {"passwords": {"ann": "a long word"}, "realm": "x"})
    yield Entry("BearerAuth", BearerAuth, {"tokens": {"a long token": "ann"}})
    yield Entry("hide_fields", lambda patterns, mask: hide_fields(patterns, mask=mask), {"patterns": "a", "mask": "x"})
    tables_of_broker = {"outbox_table": place.table, "dlq_table": place.dlq_table, "log_tables": place.log_tables}
    yield Entry("OutboxBroker", place.make_broker, own(OutboxBroker) | {"engine": place.engine} | tables_of_broker)
    yield Entry("OutboxRouter", package.OutboxRouter, {"prefix": "q", "handlers": ()})
    yield Entry("TestOutboxBroker", lambda broker: package.TestOutboxBroker(broker), {"broker": place.broker})
    of_client = {"engine": place.engine, "table": place.table, **defaults(OutboxClient)}
    del of_client["connections"]  # of tests
    yield Entry("OutboxClient", OutboxClient, of_client)
    of_worker = {"queues": "q", "handle": print, "name": "n", "options": WorkerOptions()}
    worker = lambda **given: Worker(place.engine, place.table, client=place.client, **given)  # noqa: E731
    yield Entry("Worker", worker, of_worker)
    tables = {"table": None, "dlq_table": None, "log_tables": None, "inbox_table": None, "timeout": 1.0}
    yield Entry("Overview", Overview, {"engine": place.engine, "lease_ttl_seconds": 1.0} | tables)
    yield Entry("Doctor", Doctor, {"engine": place.engine, "limits": None} | tables | {"table": place.table})
    inbox = {"consumer": "c", "on_concurrent": "wait", "keep": DAY}
    callbacks = {"message_id": None, "source": None, "keep_response": False}
    async_inbox = {"engine": place.engine, "table": place.inbox_table} | inbox | callbacks
    yield Entry("Inbox", package.Inbox, async_inbox)
    yield Entry("SyncInbox", package.SyncInbox, {"engine": place.sync_engine, "table": place.inbox_table} | inbox)
    of_dashboard = {"read_only": True, "trace_url": None, "title": "x", "late_after": 1.0, "timeout": 1.0}
    yield Entry("make_dashboard", lambda **given: make_dashboard(place.broker, **given), of_dashboard)


def publishing(place: Place) -> Iterator[Entry]:
    """What an application calls."""
    broker = place.broker
    message: dict[str, Any] = {"message": {"a": 1}, "headers": {"a": "b"}, "correlation_id": "c", "reply_to": "r"}
    to_queue = message | {"queue": "q", "key": "k", "priority": 1, "message_id": UUID(int=1), "on_duplicate": "error"}
    timed = {"activate_in": None, "activate_at": None, "timer_id": "t", "timer_conflict": "ignore"}
    plain = {"message": 1, "queue": "q", "headers": None, "correlation_id": None, "reply_to": "", "key": None}
    to_topic = message | {"topic": "t", "key": "k", "message_id": UUID(int=5), "on_duplicate": "error", "priority": 0}
    for good in (to_queue | timed, plain, to_topic):
        yield Entry("OutboxBroker.publish", place.in_session(broker.publish), good)
        yield Entry("OutboxBroker.publish_sync", place.in_sync_session(broker.publish_sync), good)
        response = {name: value for name, value in good.items() if name not in ("message", "reply_to")}
        yield Entry("OutboxResponse", package.OutboxResponse, response | {"body": 1})
    yield Entry("OutboxBroker.publish", lambda session: broker.publish(1, "q", session=session), {"session": None})
    sync = lambda session: broker.publish_sync(1, "q", session=session)  # noqa: E731
    yield Entry("OutboxBroker.publish_sync", sync, {"session": None})

    async def batch(message: Any, **given: Any) -> None:
        await broker.publish_batch(message, 2, **given)

    each = {"message": 1, "headers": {"a": "b"}, "correlation_id": "c", "key": None, "keys": ("a", "b")}
    each |= {"message_ids": None, "on_duplicate": "error"}
    later: dict[str, Any] = {"priority": 1, "activate_in": None, "activate_at": None}
    for more in ({"queue": "q", **later}, {"topic": "t"}):
        yield Entry("OutboxBroker.publish_batch", place.in_session(batch), each | more)
    timer = {"queue": "q", "timer_id": "t"}
    yield Entry("OutboxBroker.cancel_timer", place.in_session(broker.cancel_timer), timer)
    yield Entry("OutboxBroker.cancel_timer_sync", place.in_sync_session(broker.cancel_timer_sync), timer)
    of_engine = {"table": place.table}
    yield Entry("cancel_timer", place.in_session(lambda **given: cancel_timer(**of_engine | given)), timer)
    yield Entry(
        "cancel_timer_sync", place.in_sync_session(lambda **given: cancel_timer_sync(**of_engine | given)), timer
    )
    envelope = {"queue": "q", "body": b"", "headers": {"a": "b"}, "key": "k", "priority": 1, "message_id": None} | timed
    put = lambda session, **given: publish(session, place.table, Envelope(**given))  # noqa: E731
    yield Entry("publish", place.in_session(put), envelope)
    put_sync = lambda session, **given: publish_sync(session, place.table, Envelope(**given))  # noqa: E731
    yield Entry("publish_sync", place.in_sync_session(put_sync), envelope)
    publisher = {"queue": "q", "headers": {"a": "b"}, "reply_to": "r", "key": "k", "priority": 1}
    yield Entry("OutboxBroker.publisher", lambda **given: place.make_broker().publisher(**given), publisher)
    yield Entry("OutboxRoutePublisher", package.OutboxRoutePublisher, publisher)
    options = own(OutboxBroker.subscriber)
    of_queue = {name: value for name, value in options.items() if name not in ("topic", "group", "start")}
    subscriber = lambda **given: place.make_broker().subscriber(**given)(lambda body: None)  # noqa: E731
    yield Entry("OutboxBroker.subscriber", subscriber, of_queue | {"queues": "q"})
    of_topic = {"topic": "t", "group": "g", "start": "earliest", "max_deferred": 10, "max_workers": 2}
    yield Entry("OutboxBroker.subscriber", subscriber, of_topic)
    route = lambda **given: place.make_broker().include_router(  # noqa: E731
        package.OutboxRouter(handlers=[package.OutboxRoute(lambda body: None, **given)])
    )
    yield Entry("OutboxRoute", route, of_queue | {"queues": "q"})
    relay = {name: value for name, value in own(OutboxBroker.relay).items() if name not in ("topic", "group", "start")}
    to = Nowhere()
    yield Entry(
        "OutboxBroker.relay", lambda **given: place.make_broker().relay(**given), relay | {"queues": "q", "to": to}
    )


def operating(place: Place) -> Iterator[Entry]:
    """What operators call, about queues."""
    broker, letters, overview = place.broker, place.letters, place.overview
    asked: dict[str, Any] = {"queue": "q", "limit": 5}
    yield Entry("OutboxBroker.fetch_unprocessed", place.in_session(broker.fetch_unprocessed), asked)
    fetch = place.in_session(lambda **given: fetch_unprocessed(table=place.table, **given))
    yield Entry("fetch_unprocessed", fetch, asked)
    yield Entry("OutboxBroker.pause", broker.pause, {"queue": "q", "create": True})
    yield Entry("OutboxBroker.resume", broker.resume, {"queue": "q"})
    yield Entry("OutboxBroker.ping", broker.ping, {"timeout": 1.0})
    now = datetime.now(UTC)
    chosen = {"ids": [1], "queue": "q", "key": "k", "reason": "r", "error_type": "e", "since": now, "until": now}
    yield Entry("Selection", lambda **given: letters.find(Selection(**given)), chosen)
    which: dict[str, Any] = {"selection": ALL, "up_to": 5}
    sliced = which | {"rate": 1000.0, "slice_size": 10, "on_progress": None}
    yield Entry("DeadLetters", DeadLetters, {"client": place.client})
    yield Entry("DeadLetters.find", letters.find, {"selection": ALL, "limit": 1, "before": 3})
    yield Entry("DeadLetters.count", letters.count, {"selection": ALL})
    yield Entry("DeadLetters.groups", letters.groups, {"queue": "q"})
    yield Entry("DeadLetters.summary", letters.summary, which)
    yield Entry("DeadLetters.replay", letters.replay, sliced | {"dry_run": True})
    yield Entry("DeadLetters.purge", letters.purge, sliced)
    edited = {"letter_id": 1, "payload": b"", "headers": {}}
    yield Entry("DeadLetters.edit", letters.edit, edited)
    yield Entry("DeadLetters.edit_and_replay", letters.edit_and_replay, edited)
    yield Entry("Overview.queues", overview.queues, {"queue": "q"})
    yield Entry("Overview.timers", overview.timers, asked)
    yield Entry("Overview.message", overview.message, {"id_or_message_id": 1})
    yield Entry("Overview.dead_letters", overview.dead_letters, {"selection": ALL, "limit": 1, "after": 0})
    yield Entry("Doctor.examine", Doctor(place.engine, table=place.table).examine, {"only": []})
    yield Entry("health", lambda timeout: health(place.broker, timeout=timeout), {"timeout": 0.5})
    routes = {"timeout": 0.5, "prefix": ""}
    yield Entry("health_routes", lambda **given: health_routes(place.broker, **given), routes)


def topics(place: Place) -> Iterator[Entry]:
    """What is about topics, and the inbox."""
    outbox, overview = place.outbox, place.overview
    group: dict[str, Any] = {"consumer_group": "g", "uri": "u"}

    async def handle(message: OutboxMessage) -> None:
        raise AssertionError(message)

    async def put(session: AsyncSession, event_id: Any = None, **given: Any) -> None:
        message = OutboxMessage(**given)
        if event_id is not None and isinstance(message.metadata, dict):
            message.metadata = message.metadata | {"event_id": event_id}
        await outbox.publish(session, message)

    of_outbox = defaults(Outbox) | {"session_pool": place.engine}
    yield Entry("Outbox", Outbox, of_outbox)
    yield Entry("slot_of", slot_of, {"uri": "a"})
    message = {"uri": "u", "payload": 1, "metadata": {"a": 1}, "event_id": "e"}
    yield Entry("Outbox.publish", place.in_session(put), message)
    share = {"subscriber": handle, "worker_id": 0, "num_workers": 1, "batch_size": 1, "transactional": False}
    yield Entry("Outbox.dispatch", outbox.dispatch, group | share)
    yield Entry("Outbox.lag", outbox.lag, group)
    yield Entry("Outbox.lag_by_slot", outbox.lag_by_slot, group)
    yield Entry("Outbox.get_position", place.in_session(outbox.get_position), group)
    yield Entry("Outbox.get_cursor", place.in_session(outbox.get_cursor), group)
    yield Entry("Outbox.seek", place.in_session(outbox.seek), group | {"place": "earliest", "create": True})
    position = {"transaction_id": 0, "offset": 0}
    yield Entry("Outbox.set_position", place.in_session(outbox.set_position), group | position)
    waiting = {"token": Token(()), "timeout": 1.0}
    yield Entry("Outbox.wait_until_caught_up", outbox.wait_until_caught_up, group | waiting)
    yield Entry("Outbox.parked.list", outbox.parked.list, group)
    yield Entry("Overview.groups", overview.groups, {"group": "g"})
    yield Entry("Overview.slots", overview.slots, {"group": "g", "uri": "u"})
    yield Entry("Overview.blocked_keys", overview.blocked_keys, {"group": "g", "limit": 1})
    yield Entry("Overview.gaps", overview.gaps, {"limit": 1})
    sync_inbox = package.SyncInbox(place.sync_engine, place.inbox_table, consumer="c")

    async def receive(**given: Any) -> None:
        async with place.inbox.receive(**given):
            pass

    def receive_sync(**given: Any) -> None:
        with sync_inbox.receive(**given):
            pass

    received = {"message_id": "m", "source": "s"}
    yield Entry("Inbox.receive", receive, received)
    yield Entry("SyncInbox.receive", receive_sync, received)
