"""Handlers that take the transaction: effects and cursor commit together, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import OutboxMessage
from tests.log.opened import Collector, delivered, drain, reading, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually

NEVER = ConstantRetry(delay_seconds=3600)


@pytest.fixture
async def effects(rig: LogRig) -> AsyncIterator[None]:
    """A table for effects, whose constraint is checked at the commit."""
    await rig.ask("create table effects_parents (id int primary key)")
    await rig.ask("create table effects (n int, parent int references effects_parents deferrable initially deferred)")
    yield
    await rig.ask("drop table effects, effects_parents")


async def write(session: AsyncSession, number: int, parent: int | None = None) -> None:
    await session.execute(text("insert into effects values (:n, :parent)"), {"n": number, "parent": parent})


async def handle(message: OutboxMessage, session: AsyncSession) -> None:
    """Has an effect."""
    await write(session, message.payload)


def guilty(*payloads: int) -> Any:
    """A handler whose effects of some messages cannot be committed."""

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        await write(session, message.payload, parent=404 if message.payload in payloads else None)

    return handle


async def written(rig: LogRig) -> list[int]:
    return [row["n"] for row in await rig.ask("select n from effects order by n")]


async def put_three(rig: LogRig) -> None:
    for number in (1, 2, 3):
        await rig.put(f"k{number}", number)


@pytest.mark.usefixtures("effects")
class TestEffects:
    async def test_effects_and_cursor_commit_together(self, rig: LogRig) -> None:
        await rig.put("a", 1, 2, 3)
        assert (await rig.outbox.dispatch(handle, "g", transactional=True)).handled == 3
        assert await written(rig) == [1, 2, 3]
        assert not await rig.outbox.dispatch(handle, "g", transactional=True)

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
    @pytest.mark.parametrize("fails", ["error", "statement"])
    async def test_failing_message_takes_back_its_own_effects_only(
        self, rig: LogRig, engine: AsyncEngine, psycopg_engine: AsyncEngine, driver: str, fails: str
    ) -> None:
        outbox = await rig.another(engine=engine if driver == "asyncpg" else psycopg_engine)
        await put_three(rig)

        async def fail(message: OutboxMessage, session: AsyncSession) -> None:
            await write(session, message.payload)
            if message.payload == 2:
                if fails == "error":
                    raise ValueError(message.payload)
                await session.execute(text("select 1/0"))

        done = await outbox.dispatch(fail, "g", transactional=True)
        assert (done.handled, [message.payload for message, _ in done.failures]) == (2, [2])
        assert await written(rig) == [1, 3]
        assert [(row["position"], row["state"], row["attempts"]) for row in await rig.deferrals()] == [(2, "retry", 1)]

    async def test_constraint_that_fails_at_the_commit_isolates_the_guilty_one(self, rig: LogRig) -> None:
        """Messages are tried one by one then, and counted once."""
        await put_three(rig)
        done = await rig.outbox.dispatch(guilty(2), "g", transactional=True)
        assert (done.handled, [message.payload for message, _ in done.failures]) == (2, [2])
        assert await written(rig) == [1, 3]
        assert [(row["key"], row["state"]) for row in await rig.deferrals()] == [("k2", "retry")]

    async def test_messages_behind_the_guilty_one_of_its_key_wait(self, rig: LogRig) -> None:
        await rig.put("k", 1, 2)
        await rig.put("other", 3)
        await rig.outbox.dispatch(guilty(1), "g", transactional=True)
        assert await written(rig) == [3]
        assert [(row["position"], row["state"]) for row in await rig.deferrals()] == [(1, "retry"), (2, "deferred")]

    async def test_stopping_while_the_whole_does_not_commit_loses_nothing(self, rig: LogRig) -> None:
        """The batch fails at its commit just when the consumer is told to stop."""
        await rig.put("a", 1)
        await rig.put("b", 2)
        stop = asyncio.Event()

        async def fail(message: OutboxMessage, session: AsyncSession) -> None:
            await write(session, message.payload, parent=404)
            if message.payload == 2:
                stop.set()
                await asyncio.sleep(0.05)

        await rig.outbox.run(fail, "g", stop_event=stop, transactional=True)
        deferrals = {row["position"] for row in await rig.deferrals()}
        assert deferrals | set(await delivered(rig.outbox, "g")) == {1, 2}

    async def test_lost_lease_rolls_the_effects_back(self, rig: LogRig) -> None:
        await rig.put("a", 1)

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            await write(session, message.payload)
            await rig.ask("update {offsets} set epoch = epoch + 1, owner = null")

        assert (await rig.outbox.dispatch(handle, "g", transactional=True)).handled == 0
        assert await written(rig) == []
        assert (await rig.spans())[0]["position"] == 0

    async def test_lost_lease_rolls_the_effects_back_also_where_a_slot_is_stopped(self, rig: LogRig) -> None:
        """A key over its cap makes the reader cut its span, which fails as well: that is no leave to commit."""
        outbox = await rig.another(retry_strategy=NEVER, max_deferred=1)
        await rig.put("k", 1, 2, 3)
        await rig.put("other", 4)

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            if message.uri == "k":
                raise ValueError(message.payload)
            await write(session, message.payload)
            await rig.ask("update {offsets} set epoch = epoch + 1, owner = null")

        await outbox.dispatch(handle, "g", transactional=True)
        assert await written(rig) == []

    @pytest.mark.slow
    async def test_effects_happen_once_where_a_slot_is_stopped_while_another_member_cuts(self, rig: LogRig) -> None:
        """Somebody else is about the group's spans just then: the cut must be tried again, not the effects."""
        outbox = await rig.another(retry_strategy=NEVER, max_deferred=1)
        await rig.put("k", 1, 2, 3)
        await rig.put("other", 4)
        gate = "select pg_advisory_xact_lock(hashtextextended('g' || chr(31) || '', 1869))"
        other = await rig.writer()
        is_free = False

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            if message.uri == "k":
                raise ValueError(message.payload)
            await write(session, message.payload)
            if not is_free:
                await other.execute(gate)

        await outbox.dispatch(handle, "g", transactional=True)
        await other.rollback()
        is_free = True
        await rig.ask("update {offsets} set owner = null, until = null")
        await drain(outbox, handle, "g", transactional=True)
        assert await written(rig) == [4]

    async def test_stopped_slot_loses_nothing_when_the_whole_does_not_commit(self, rig: LogRig) -> None:
        """What a try has found that was rolled back, a slot that must stop too, is not true for the next try."""
        outbox = await rig.another(retry_strategy=NEVER, max_deferred=2)
        await rig.put("k", 1, 2, 3, 4)
        await rig.put("guilty", 404)

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            if message.uri == "k":
                raise ValueError(message.payload)
            await write(session, message.payload, parent=404)

        await drain(outbox, handle, "g", transactional=True)
        await rig.ask("update {deferred} set due = now()")
        collector = Collector()
        await drain(outbox, collector, "g")
        assert collector.of("k") == [1, 2, 3, 4]

    @pytest.mark.slow
    async def test_key_that_failed_alone_holds_up_what_waits_behind_it(self, rig: LogRig) -> None:
        """Messages that wait are tried one by one after a commit that failed: the order of a key stays."""
        outbox = await rig.another(retry_strategy=NEVER)
        await rig.put("k", 1, 2)
        await rig.put("guilty", 404)
        seen: list[int] = []
        is_second = False

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            if message.uri == "guilty":
                if not is_second:
                    raise ValueError(message.payload)
                await write(session, message.payload, parent=404)
            elif message.payload == 1:
                raise ValueError(message.payload)
            else:
                seen.append(message.payload)

        await outbox.dispatch(handle, "g", transactional=True)
        await rig.ask("update {deferred} set due = now()")
        is_second = True
        await outbox.dispatch(handle, "g", transactional=True)
        assert seen == []
        assert [row["position"] for row in await rig.deferrals()] == [1, 2, 3]

    async def test_messages_passed_over_before_a_batch_do_not_make_it_look_lost(self, rig: LogRig) -> None:
        await rig.put("nothing of ours", *range(500))
        await rig.put("mine/1", 1)
        await rig.put("nothing of ours", *range(500))
        await rig.put("mine/2", 2)
        await drain(rig.outbox, handle, "g", "mine", transactional=True, batch_size=10)
        assert await written(rig) == [1, 2]

    async def test_message_that_waited_is_ended_in_the_commit_of_its_effects(self, rig: LogRig) -> None:
        outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
        await rig.put("k", 1, 2)
        fails = True

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            await write(session, message.payload)
            if fails:
                raise ValueError(message.payload)

        await outbox.dispatch(handle, "g", transactional=True)
        fails = False
        await asyncio.sleep(0.02)
        await outbox.dispatch(handle, "g", transactional=True)
        assert await written(rig) == [1, 2]
        assert await rig.deferrals() == []

    async def test_parking_in_a_transaction_keeps_the_error(self, rig: LogRig) -> None:
        outbox = await rig.another(retry_strategy=NoRetry())
        await rig.put("k", "no good")
        await outbox.dispatch(refuse, "g", transactional=True)
        (parked,) = await outbox.parked.list("g")
        assert (parked.error_type, parked.error_message, parked.attempts) == ("ValueError", "no good", 1)

    async def test_end_of_a_message_is_told_and_its_beginning_is_not(self, rig: LogRig) -> None:
        await rig.put("k", 1)
        await rig.outbox.dispatch(handle, "g", transactional=True)
        async with aclosing(rig.outbox.messages("other")) as messages:
            async for _ in messages:
                break
        assert (len(rig.reported(events.Handled)), rig.reported(events.Started)) == (1, [])

    async def test_transient_error_keeps_nothing_and_counts_nothing(self, rig: LogRig) -> None:
        await rig.put("k", 1)

        async def conflict(message: OutboxMessage, session: AsyncSession) -> None:
            await write(session, message.payload)
            await session.execute(text("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"))

        with pytest.raises(Exception, match="conflict"):
            await rig.outbox.dispatch(conflict, "g", transactional=True)
        assert await written(rig) == []
        assert await rig.deferrals() == []


@pytest.mark.slow
async def test_consumer_goes_on_after_transient_errors_of_its_handler(rig: LogRig) -> None:
    await rig.put("k", 1)
    calls: list[Any] = []

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        calls.append(message.payload)
        if len(calls) < 3:
            raise OperationalError("select", {}, _Conflict())

    async with reading(rig.outbox, handle, "g", transactional=True):
        await eventually(lambda: len(calls) >= 3)
    assert await rig.deferrals() == []
    assert (await rig.spans())[0]["position"] == 1


class _Conflict(Exception):
    sqlstate = "40001"


@pytest.mark.slow
@pytest.mark.usefixtures("effects")
@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_handler_that_ends_the_transaction_itself_fails_alone(rig: LogRig, ending: str) -> None:
    """What its neighbours in the batch have written is neither lost nor committed apart from the cursor."""
    outbox = await rig.another(retry_strategy=NEVER)
    await put_three(rig)

    async def end_it(message: OutboxMessage, session: AsyncSession) -> None:
        await write(session, message.payload)
        if message.payload == 2:
            await getattr(session, ending)()

    await drain(outbox, end_it, "g", transactional=True)
    assert await written(rig) == [1, 3]
    assert [row["position"] for row in await rig.deferrals()] == [2]
