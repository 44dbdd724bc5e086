"""What each role of the security page does all day, through the library's own doors.

A job ends when everything was done. It fails at once where the library says that a right is missing: waiting would
not bring it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import Envelope, Inbox, OutboxBroker
from faststream_outbox._internal.events.types import StatementFailed
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.events import Events
from faststream_outbox.inbox import Answer
from faststream_outbox.log import Outbox
from faststream_outbox.log import OutboxMessage as LogMessage
from faststream_outbox.overview import Overview, fetch_unprocessed
from faststream_outbox.publish import cancel_timer, publish
from faststream_outbox.queue import DeadLetters, OutboxClient, Selection, pause, paused, resume
from tests.rights.stage import Stage
from tests.waiting import eventually

Job = Callable[[Stage, AsyncEngine], Awaitable[None]]


class Troubles:
    """Raises what was refused, instead of letting a test wait for it."""

    def __init__(self, events: Events) -> None:
        self._report: list[StatementFailed] = []
        events.subscribe(self._report.append, StatementFailed)

    async def until(self, predicate: Callable[[], Any]) -> None:
        await eventually(lambda: self._report or predicate())
        if self._report:
            raise self._report[0].error


def broker_of(stage: Stage, engine: AsyncEngine) -> OutboxBroker:
    tables = {"outbox_table": stage.table, "dlq_table": stage.dlq_table, "log_tables": stage.log_tables}
    return OutboxBroker(engine, **tables, logger=None, graceful_timeout=1.0)


@asynccontextmanager
async def log_of(stage: Stage, engine: AsyncEngine, **options: Any) -> AsyncIterator[Outbox]:
    async with Outbox(engine, tables=stage.log_tables, events=Events(), **options) as outbox:
        yield outbox


async def produce(stage: Stage, engine: AsyncEngine) -> None:
    broker = broker_of(stage, engine)
    later = timedelta(hours=1)
    async with AsyncSession(engine) as session, session.begin():
        assert await broker.publish(1, queue="orders", session=session)
        assert len(await broker.publish_batch(2, 3, queue="orders", session=session)) == 2
        await publish(
            session, stage.table, Envelope(queue="orders", body=b"4", key="k"), Envelope(queue="mails", body=b"5")
        )
        assert await broker.publish(6, queue="orders", timer_id="t", activate_in=later, session=session)
        assert await broker.publish(7, queue="orders", timer_id="t", activate_in=later, session=session) is None
    assert stage.ask("SELECT count(*) FROM outbox") == [(6,)]


async def schedule(stage: Stage, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        for conflict in ("replace", "extend", "ignore"):
            timer = Envelope(queue="orders", body=conflict.encode(), timer_id="t", timer_conflict=conflict)
            await publish(session, stage.table, timer)
        assert await cancel_timer(session, stage.table, queue="orders", timer_id="t")
        assert not await cancel_timer(session, stage.table, queue="orders", timer_id="t")


async def work(stage: Stage, engine: AsyncEngine) -> None:
    broker = broker_of(stage, engine)
    troubles = Troubles(broker.client.events)
    handled: list[str] = []
    looks = {
        "min_fetch_interval": 0.05,
        "max_fetch_interval": 0.05,
        "retry_strategy": ConstantRetry(delay_seconds=0.001),
    }

    @broker.subscriber("orders", **looks)
    async def handle(message: OutboxMessage) -> None:
        if message.raw_message.attempts_count == 0:
            raise RuntimeError("again")
        handled.append(message.body.decode())

    @broker.subscriber("poison", **looks)
    async def refuse(message: OutboxMessage) -> None:
        await message.reject()

    @broker.subscriber("effects", transactional=True, **looks)
    async def effects(message: OutboxMessage) -> None:
        handled.append(message.body.decode())

    await broker.start()
    try:
        stage.execute(
            "INSERT INTO outbox (queue, payload, key) VALUES ('orders', 'a', NULL), ('orders', 'b', 'k'),"
            " ('orders', 'c', 'k'), ('poison', 'd', NULL), ('effects', 'e', NULL)"
        )
        await troubles.until(lambda: stage.ask("SELECT count(*) FROM outbox") == [(0,)])
    finally:
        await broker.stop()
    assert sorted(handled) == ["a", "b", "c", "e"]
    assert stage.ask("SELECT queue FROM outbox_dlq") == [("poison",)]


async def announce(stage: Stage, engine: AsyncEngine) -> None:
    broker = broker_of(stage, engine)
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish(1, topic="shop", key="a", session=session)
        await broker.publish_batch(2, 3, topic="shop", key="a", session=session)
    assert stage.ask("SELECT count(*) FROM outbox_log") == [(3,)]


def fill(stage: Stage, *bodies: str) -> None:
    """Publish to the log as the owner."""
    for body in bodies:
        stage.execute(
            "INSERT INTO outbox_log (position, uri, slot, payload, metadata, created_at, transaction_id) SELECT"
            f" nextval('outbox_log_head_drawn_seq'), 'shop/{body}', 7, '\"{body}\"', '{{}}', now(),"
            " pg_current_xact_id()::text::bigint"
        )


async def consume(stage: Stage, engine: AsyncEngine) -> None:
    fill(stage, "a", "b", "poison")
    handled: list[Any] = []

    async def handle(message: LogMessage) -> None:
        if message.payload == "poison":
            raise RuntimeError("never")
        handled.append(message.payload)

    retry = {"retry_strategy": ConstantRetry(delay_seconds=0.001, max_attempts=2), "lease_ttl_seconds": 0.5}
    async with log_of(stage, engine, **retry) as first, log_of(stage, engine, **retry) as second:
        await first.setup()
        troubles, ended = Troubles(first.events), asyncio.Event()
        killed = asyncio.create_task(second.run(handle, "billing", concurrency=2))
        running = asyncio.create_task(first.run(handle, "billing", concurrency=2, stop_event=ended))
        try:
            await troubles.until(lambda: stage.ask("SELECT state FROM outbox_log_deferred") == [("parked",)])
            killed.cancel()
            # A copy of the database that did not carry its sequence.
            stage.execute("ALTER SEQUENCE outbox_log_head_drawn_seq RESTART")
            moved = "SELECT last_value > 2 FROM outbox_log_head_drawn_seq"
            await troubles.until(lambda: stage.ask(moved) == [(True,)])
            fill(stage, "c")
            await troubles.until(lambda: set(handled) == {"a", "b", "c"})
        finally:
            ended.set()
            await asyncio.gather(killed, running, return_exceptions=True)


async def operate(stage: Stage, engine: AsyncEngine) -> None:
    stage.execute(
        "INSERT INTO outbox_dlq (original_id, message_id, queue, payload, created_at, failure_reason) SELECT n + 50,"
        " gen_random_uuid(), 'orders', 'x', now(), 'rejected' FROM generate_series(1, 3) n"
    )
    client = OutboxClient(engine, stage.table, dlq_table=stage.dlq_table, log=None, listen=False)
    assert await pause(client, "orders")
    assert await paused(client) == ["orders"]
    assert await resume(client, "orders")
    letters = DeadLetters(client)
    first, *_ = await letters.find(Selection(everything=True))
    assert await letters.groups()
    assert (await letters.edit_and_replay(first.id, payload=b"y")).replayed == 1
    assert (await letters.replay(Selection(queue="orders"))).replayed == 2
    assert stage.ask("SELECT nextval('outbox_id_seq') > 53") == [(True,)], "a message to come would take this id"
    assert await letters.purge(Selection(everything=True)) == 0
    fill(stage, "a", "b")
    stage.execute(
        "INSERT INTO outbox_log_deferred (consumer_group, uri, position, tick, slot, key, state)"
        " SELECT 'billing', '', n, 1, 7, 'shop', 'parked' FROM generate_series(1, 2) n"
    )
    async with log_of(stage, engine) as outbox:
        async with AsyncSession(engine) as session, session.begin():
            await outbox.seek(session, "latest", "billing", create=True)
            await outbox.set_position(session, "billing", offset=1)
            assert await outbox.get_position(session, "billing")
        assert [lag.messages for lag in await outbox.lag("billing")] == [1]
        assert await outbox.parked.retry("billing", positions=[1]) == [1]
        assert await outbox.parked.skip("billing", 1) == [1]
        async with AsyncSession(engine) as session, session.begin():
            await outbox.seek(session, "latest", "billing")
        assert (await outbox.clean(older_than=timedelta(0))).messages == 2


async def view(stage: Stage, engine: AsyncEngine) -> None:
    fill(stage, "a", "b")
    stage.execute(
        "INSERT INTO outbox (queue, payload) VALUES ('orders', 'a')",
        "INSERT INTO outbox_log_offsets (consumer_group, lo, hi) VALUES ('billing', 0, 255)",
        "INSERT INTO outbox_log_head (id, high, tick, drawn) VALUES (1, 1, 1, 0)",
        "INSERT INTO outbox_log_ticks (tick, lows, highs, count) VALUES (1, '{1}', '{1}', 1)",
    )
    client = OutboxClient(engine, stage.table, dlq_table=stage.dlq_table, log=None, listen=False)
    assert await paused(client) == []
    assert await DeadLetters(client).find(Selection(everything=True)) == []
    async with AsyncSession(engine) as session, log_of(stage, engine) as outbox:
        assert [one.payload for one in await fetch_unprocessed(session, stage.table)] == [b"a"]
        await outbox.get_position(session, "billing")
        assert [[lag.messages for lag in await outbox.lag()] for _ in range(2)] == [[2], [2]]
        assert list(await outbox.parked.list("billing")) == []
        assert await outbox.open_gaps() == []
        await outbox.validate_schema()
    tables = {"table": stage.table, "dlq_table": stage.dlq_table, "log_tables": stage.log_tables}
    overview = Overview(engine, **tables, timeout=30)
    assert [status.ready for status in await overview.queues()] == [1]
    (message,) = stage.ask("SELECT id, message_id FROM outbox")
    assert [await overview.message(wanted) is not None for wanted in message] == [True, True]
    assert [list(await ask()) for ask in (overview.timers, overview.dead_groups)] == [[], []]
    assert list(await overview.dead_letters(Selection(everything=True))) == []
    assert any("overview" in process.roles for process in await overview.processes())
    assert (await overview.rates()).published is None
    await overview.close()
    await view_topics(stage, engine)


async def view_topics(stage: Stage, engine: AsyncEngine) -> None:
    overview = Overview(engine, table=stage.table, dlq_table=stage.dlq_table, log_tables=stage.log_tables)
    stage.execute(
        "INSERT INTO outbox_log_deferred (consumer_group, uri, position, tick, slot, key, state)"
        " SELECT 'billing', '', n, 1, 7, 'shop', CASE n WHEN 1 THEN 'retry' ELSE 'deferred' END"
        " FROM generate_series(1, 2) n"
    )
    try:
        assert [(each.messages, each.retrying, each.deferred) for each in await overview.groups()] == [(2, 1, 1)]
        assert [(each.key, each.waiting) for each in await overview.blocked_keys("billing")] == [("shop", 1)]
        with stage.drawing() as pid:
            assert [(gap.backend_pid, gap.query) for gap in await overview.gaps()] == [(pid, None)]
    finally:
        await overview.close()


async def receive(stage: Stage, engine: AsyncEngine) -> None:
    stage.execute("INSERT INTO inbox (consumer, source, message_id, received_at) VALUES ('a', 'b', 'c', '2000-01-01')")
    inbox = Inbox(engine, stage.inbox_table, consumer="billing", keep_response=True)
    for is_new in (True, False):
        async with inbox.receive("m1", source="orders") as receipt:
            assert receipt.is_new is is_new
            assert receipt.answer == (None if is_new else Answer(b"done"))
            receipt.answer = Answer(b"done")
    await inbox.stop()
    await inbox.clean()
    await inbox.validate_schema(check_rights=True)
    assert stage.ask("SELECT message_id FROM inbox") == [("m1",)]


JOBS: dict[str, Job] = {
    "outbox_producer": produce,
    "outbox_scheduler": schedule,
    "outbox_worker": work,
    "outbox_publisher": announce,
    "outbox_consumer": consume,
    "outbox_receiver": receive,
    "outbox_operator": operate,
    "outbox_viewer": view,
}
