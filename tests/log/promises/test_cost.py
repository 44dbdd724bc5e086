"""What reading and writing cost: by rows that are looked at and by indexes that are kept, never by time."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.asked import Asked, recorded, rows_looked_at
from tests.log.opened import Collector, ask, drain, put
from tests.waiting import eventually

pytestmark = pytest.mark.slow

BATCH = 100
ROUNDS = 150


@pytest.fixture
def connection(database_url: URL) -> Iterator[psycopg.Connection[Any]]:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn) as connection:
        yield connection


async def _backlog(outbox: Outbox, count: int, uri: str = "kafka://orders") -> None:
    for start in range(0, count, 2000):
        async with outbox.engine.begin() as connection:
            messages = [OutboxMessage(f"{uri}/{number % 50}", number) for number in range(start, start + 2000)]
            await outbox.publish(connection, *messages)
    await outbox.client.sequencer.catch_up()
    await ask(outbox.engine, "analyze outbox")


async def _of_one_batch(outbox: Outbox, connection: psycopg.Connection[Any], **options: Any) -> dict[str, int]:
    """The rows that each statement of a dispatch looks at, by its name."""
    collector = Collector()
    with recorded(outbox) as asked:
        assert (await outbox.dispatch(collector, "broker", batch_size=BATCH, **options)).handled == BATCH
    reads = [each for each in asked if each.statement.name in ("fetch", "ticks_after", "progress")]
    looked: dict[str, int] = {}
    for each in reads:
        looked[each.statement.name] = looked.get(each.statement.name, 0) + rows_looked_at(connection, each)
    return looked


async def test_a_batch_does_not_cost_more_with_a_backlog_a_hundred_times_as_long(
    outbox: Outbox, connection: psycopg.Connection[Any]
) -> None:
    await _backlog(outbox, 2000)
    short = await _of_one_batch(outbox, connection)
    await _backlog(outbox, 60_000)
    long = await _of_one_batch(outbox, connection)
    assert long["fetch"] <= short["fetch"]
    # In the middle of it, too, and for one of several workers.
    async with outbox.engine.begin() as session:
        await outbox.set_position(session, "broker", offset=31_000)
    middle = await _of_one_batch(outbox, connection)
    assert middle["fetch"] <= short["fetch"]
    assert middle["fetch"] <= 2 * BATCH
    share = await _of_one_batch(outbox, connection, worker_id=1, num_workers=4)
    # One in four is its own, more or less: fifty keys do not fill the slots evenly.
    assert share["fetch"] <= 20 * BATCH


async def test_ticks_are_read_in_portions_however_many_there_are(
    outbox: Outbox, connection: psycopg.Connection[Any]
) -> None:
    for number in range(400):
        await put(outbox, "kafka://orders", number)
        await outbox.client.sequencer.tick(wait=True)
    looked = await _of_one_batch(outbox, connection)
    assert looked["ticks_after"] <= 200
    assert looked["fetch"] <= 2 * BATCH


async def test_a_tick_looks_at_no_more_than_it_takes(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    for _ in range(15):
        await put(outbox, "kafka://orders", *range(2000))
    with recorded(outbox) as asked:
        await outbox.client.sequencer.catch_up()
    ticks = [each for each in asked if each.statement.name == "tick"]
    limit = ticks[0].values["limit"]
    assert len(ticks) == 30_000 // limit + 1
    # The next tick, when there is nothing new: the head and nothing else of any size.
    assert rows_looked_at(connection, Asked(ticks[-1].statement, ticks[-1].values)) < 10


async def test_an_idle_group_looks_at_no_message(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    await _backlog(outbox, 20_000)
    collector = Collector()
    await drain(outbox, collector, "broker", batch_size=1000)
    with recorded(outbox) as asked:
        assert not await outbox.dispatch(collector, "broker")
    assert [each.statement.name for each in asked if each.statement.name == "fetch"] == []
    assert (
        sum(rows_looked_at(connection, each) for each in asked if each.statement.name in ("progress", "ticks_after"))
        < 5
    )


async def test_a_message_has_two_indexes_and_the_one_for_event_ids_only_where_it_has_one(outbox: Outbox) -> None:
    await put(outbox, "kafka://orders", *range(1000))
    rows = await ask(
        outbox.engine,
        "select i.indexrelid::regclass::text, pg_relation_size(i.indexrelid), i.indpred is not null"
        " from pg_index i where i.indrelid = 'outbox'::regclass order by 1",
    )
    sizes = {name: (size, is_partial) for name, size, is_partial in rows}
    assert set(sizes) == {"outbox_event_id_uq", "outbox_pkey"}
    # An empty index is its first page.
    assert sizes["outbox_event_id_uq"] == (8192, True)


async def test_every_index_of_a_message_is_used_by_a_question(
    outbox: Outbox, connection: psycopg.Connection[Any]
) -> None:
    await _backlog(outbox, 4000)
    with recorded(outbox) as asked:
        await outbox.dispatch(Collector(), "broker")
    fetch = next(each for each in asked if each.statement.name == "fetch")
    sql = f"explain {fetch.statement.pyformat}".encode()
    plan = "\n".join(row[0] for row in connection.execute(sql, fetch.values))
    connection.rollback()
    assert "outbox_pkey" in plan
    by_event = "explain select position from outbox where event_id = gen_random_uuid()"
    assert "outbox_event_id_uq" in "\n".join(row[0] for row in connection.execute(by_event))
    connection.rollback()


async def test_positions_are_updated_in_place(outbox: Outbox) -> None:
    collector = Collector()
    for number in range(ROUNDS):
        await put(outbox, "kafka://orders", number)
        await outbox.dispatch(collector, "broker")
    await outbox.cleanup()
    (sizes,) = await ask(outbox.engine, "select pg_relation_size('outbox_offsets')")
    assert tuple(sizes) == (8192,), "cursors do not stay on their page"

    async def counted() -> Any:
        # The log's connections are closed, and report at the latest then.
        rows = await ask(
            outbox.engine,
            "select n_tup_upd, n_tup_upd - n_tup_hot_upd from pg_stat_user_tables where relname = 'outbox_offsets'",
        )
        return rows if min(updates for updates, _ in rows) >= ROUNDS else None

    assert [elsewhere for _, elsewhere in await eventually(counted)] == [0]


async def test_many_messages_are_published_by_one_statement(outbox: Outbox) -> None:
    await put(outbox, "kafka://orders", *range(500))
    rows = await ask(outbox.engine, "select count(distinct created_at), count(distinct cmin::text) from outbox")
    assert tuple(rows[0]) == (1, 1)
