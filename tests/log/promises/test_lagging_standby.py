"""A standby takes over that is a little behind: what comes under the numbers that it lacked is not passed over."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.log import OutboxMessage
from tests.log.opened import reading
from tests.log.rig import LogRig, in_hand, succeed
from tests.waiting import eventually


async def fail_over(rig: LogRig, position: int) -> None:
    """Go on without anything behind that position, as a standby would that had not heard of it."""
    async with rig.engine.begin() as connection:
        # As a standby would be: not in the middle of a tick.
        await connection.exec_driver_sql(statements("tick", rig.outbox.client.names)["wait_for_head"].dollar)
        for statement in (
            "delete from {log} where position > :position",
            "delete from {ticks} where highs[array_upper(highs, 1)] > :position",
            "delete from {gap_table}",
            "update {head_table} set high = :position, tick = (select max(tick) from {ticks}), snapshot = null, "
            "lows = '{}', highs = '{}', floor = 0",
            "select setval('{sequence_name}', :position) where :position > 0",
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() and :position > 0",
        ):
            values = {"position": position} if ":position" in statement else {}
            await connection.execute(text(rig.filled(statement)), values)
    await rig.engine.dispose()


class InHand:
    """A handler that keeps one message in flight until it is told to go on."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.seen: list[Any] = []

    async def __call__(self, message: OutboxMessage, session: AsyncSession | None = None) -> None:
        if message.payload == "in flight":
            self.began.set()
            await self.go_on.wait()
            if self.fails:
                raise ValueError(message.payload)
        self.seen.append(message.payload)


NEW = [f"new {number}" for number in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True], ids=["handled", "failed"])
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_message_in_hand_that_the_new_primary_lacks_is_not_settled_there(
    driver_rig: LogRig, *, transactional: bool, fails: bool
) -> None:
    rig = driver_rig
    # A client that the change does not concern, to publish with: the other one has ticks of its own to forget.
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01), lease_ttl_seconds=2.0)
    handle = InHand(fails=fails)
    await rig.put_apart("k", "kept")
    async with reading(outbox, handle, "g", poll_interval=0.1, transactional=transactional):
        await eventually(lambda: handle.seen == ["kept"], 10)
        await rig.put_apart("k", "in flight")
        await asyncio.wait_for(handle.began.wait(), 30)
        await fail_over(rig, 1)
        later = await rig.another()
        await rig.put_apart("k", *NEW, outbox=later)
        handle.go_on.set()
        await eventually(lambda: set(NEW) <= set(handle.seen), 20, "everything new is delivered")
    assert await rig.deferrals() == []


async def next_payloads(reader: Reader) -> list[Any]:
    batch = await reader.next_batch(is_idle=True)
    return [delivery.message.payload for delivery in batch.deliveries] if batch else []


@pytest.mark.slow
async def test_places_that_were_passed_over_are_not_written_on_a_server_that_lacks_them(rig: LogRig) -> None:
    await rig.put_apart("mine", "kept")
    reader = await rig.reader(uri="mine")
    await reader.join()
    await (await in_hand(reader)).run(succeed)
    await rig.put_apart("other", "not ours", "not ours")
    assert await reader.next_batch(is_idle=True) is None
    await fail_over(rig, 1)
    later = await rig.another()
    await rig.put_apart("mine", *NEW, outbox=later)
    await reader.settler.write_progress()
    await reader.join()
    assert await next_payloads(reader) == NEW


@pytest.mark.slow
async def test_span_beyond_the_end_of_the_log_draws_no_other_one_after_it(rig: LogRig) -> None:
    """As an older version may have left it: the others of the same member must not jump there."""
    await rig.put_apart("k", "kept")
    reader = await rig.reader()
    await reader.join()
    await (await in_hand(reader)).run(succeed)
    await reader.member.leases.isolate(255)
    await rig.ask("update {offsets} set tick = 900, position = 900 where lo = 255")
    another = await rig.reader()
    await reader.leave()
    await another.join()
    assert await another.next_batch(is_idle=True) is None
    await rig.put_apart("k", *NEW)
    assert await next_payloads(another) == NEW
