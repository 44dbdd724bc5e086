"""Partitions that are dropped while others work: interrupted half-way, at the same time as a seek, by two at once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.log import Cursor
from tests.log.opened import delivered
from tests.log.rig import LogRig, Writer
from tests.waiting import eventually

NOW = timedelta(0)


@pytest.fixture
async def rig(parts: LogRig) -> LogRig:
    """A log in partitions, of which all messages in the first two are read."""
    await parts.put_apart("k", *range(1, 26))
    await delivered(parts.outbox, "g")
    return parts


async def tables(rig: LogRig) -> list[str]:
    """Parts that exist, attached or not."""
    rows = await rig.ask("select relname from pg_class where relname ~ '^parted_p[0-9]+$' order by 1")
    return [row["relname"] for row in rows]


async def is_pending(rig: LogRig) -> bool:
    return bool(await rig.ask("select 1 from pg_inherits where inhdetachpending"))


async def half_detached(rig: LogRig) -> tuple[Writer, asyncio.Task[Any]]:
    """Somebody who reads a partition that is being detached, and who cleans and waits for them."""
    analyst = await rig.writer()
    await analyst.execute("select count(*) from parted")
    cleaning = asyncio.create_task(rig.outbox.clean(older_than=NOW))
    await eventually(lambda: is_pending(rig), timeout=20.0)
    return analyst, cleaning


async def interrupt_detaching(rig: LogRig) -> None:
    """Clean until a partition is half detached, and end that connection."""
    analyst, cleaning = await half_detached(rig)
    await rig.ask("select pg_terminate_backend(pid) from pg_stat_activity where query like 'alter table%detach%'")
    await analyst.close()
    with pytest.raises(DBAPIError):
        await cleaning


@pytest.mark.slow
async def test_cleaning_ends_what_an_interrupted_one_began(rig: LogRig) -> None:
    await interrupt_detaching(rig)
    assert await is_pending(rig)
    cleaned = await rig.outbox.clean(older_than=NOW)
    assert (cleaned.partitions, await tables(rig)) == (2, ["parted_p2"])
    await rig.put("k", "next")
    assert await delivered(rig.outbox, "g") == ["next"]


@pytest.mark.slow
async def test_part_that_was_detached_and_not_dropped_is_dropped_by_the_next(rig: LogRig) -> None:
    await interrupt_detaching(rig)
    async with rig.engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("alter table parted detach partition parted_p0 finalize"))
    assert await tables(rig) == ["parted_p0", "parted_p1", "parted_p2"]
    await rig.outbox.clean(older_than=NOW)
    assert await tables(rig) == ["parted_p2"]


@pytest.mark.slow
async def test_part_that_an_operator_detached_is_left_alone(rig: LogRig) -> None:
    await rig.ask("alter table parted detach partition parted_p0")
    await rig.outbox.clean(older_than=NOW)
    assert await tables(rig) == ["parted_p0", "parted_p2"]


@pytest.mark.slow
async def test_dropping_waits_for_a_seek_that_is_not_committed_yet(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.seek(session, Cursor(12, 12), "g")
        cleaning = asyncio.create_task(rig.outbox.clean(older_than=NOW))
        await asyncio.wait([cleaning], timeout=0.2)
        await session.commit()
    assert (await cleaning).partitions == 1
    assert await delivered(rig.outbox, "g") == list(range(13, 26))


@pytest.mark.slow
async def test_seek_does_not_wait_for_whoever_holds_up_the_dropping(rig: LogRig) -> None:
    """Once a part is out of sight, all that is left is to wait for those who still read it."""
    analyst, cleaning = await half_detached(rig)
    async with asyncio.timeout(20), AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.seek(session, "earliest", "g")
    await analyst.close()
    await cleaning
    assert await delivered(rig.outbox, "g") == list(range(10, 26))


@pytest.mark.slow
async def test_two_that_drop_at_once_do_not_disturb_each_other(rig: LogRig) -> None:
    other = await rig.another()
    first, second = await asyncio.gather(rig.outbox.clean(older_than=NOW), other.clean(older_than=NOW))
    assert first.partitions + second.partitions == 2
    assert await tables(rig) == ["parted_p2"]


async def bounds(rig: LogRig) -> list[tuple[str, str]]:
    """Parts of the log with what they hold."""
    rows = await rig.ask(
        "select c.relname as name, pg_get_expr(c.relpartbound, c.oid) as holds from pg_inherits i "
        "join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass('parted') order by 1"
    )
    return [(row["name"], row["holds"].removeprefix("FOR VALUES ")) for row in rows]


async def test_message_whose_partition_nobody_has_made_is_kept_and_delivered(bare: LogRig) -> None:
    await bare.put("k", 1, 2)
    await bare.outbox.partitions(10).ensure(ahead=0)
    await bare.put("k", *range(3, 26))
    assert await delivered(bare.outbox, "g") == list(range(1, 26))
    assert await bounds(bare) == [
        ("parted_p0", "FROM ('0') TO ('10')"),
        ("parted_rest", "FROM ('10') TO (MAXVALUE)"),
    ]


async def test_rest_that_is_in_use_becomes_a_part_and_nothing_of_it_is_lost(bare: LogRig) -> None:
    parts = bare.outbox.partitions(10)
    await parts.ensure(ahead=0)
    await bare.put("k", *range(1, 26))
    assert await parts.ensure(ahead=1) == ["parted_p3"]
    assert await parts.ensure(ahead=1) == []
    assert await bounds(bare) == [
        ("parted_p0", "FROM ('0') TO ('10')"),
        ("parted_p1", "FROM ('10') TO ('30')"),
        ("parted_p3", "FROM ('30') TO ('40')"),
        ("parted_rest", "FROM ('40') TO (MAXVALUE)"),
    ]
    await bare.put("k", 26)
    assert await delivered(bare.outbox, "g") == list(range(1, 27))
    await bare.outbox.clean(older_than=NOW)
    assert ("parted_rest", "FROM ('40') TO (MAXVALUE)") in await bounds(bare)


@pytest.mark.slow
async def test_partitions_are_not_made_over_the_head_of_an_open_transaction(bare: LogRig) -> None:
    """Whoever publishes meanwhile waits for a moment, not for that transaction."""
    parts = bare.outbox.partitions(10)
    writer = await bare.writer()
    await writer.publish("k", 1)
    assert await parts.ensure() == []
    await bare.put("k", 2)
    await writer.commit()
    assert await parts.ensure() == ["parted_p1", "parted_p2"]
    assert await delivered(bare.outbox, "g") == [1, 2]
