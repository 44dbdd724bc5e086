"""Settling in the handler's own transaction: effects, messages and the finishing commit together or not at all."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import LeaseLost
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, SETTLED, Claim, NoRetry, Outcome
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually


@pytest.fixture
async def ledger(driver_rig: Rig) -> AsyncIterator[Rig]:
    """A rig with a table of the application's."""
    await driver_rig.sql("create table ledger (entry text not null)")
    yield driver_rig
    await driver_rig.close()
    await driver_rig.sql("drop table ledger")


async def entries(rig: Rig) -> list[str]:
    return [row["entry"] for row in await rig.sql("select entry from ledger order by entry")]


async def write(session: AsyncSession, claim: Claim) -> None:
    await session.execute(text("insert into ledger values (:entry)"), {"entry": claim.payload.decode()})


class TestCommit:
    async def test_deletes_the_message_with_the_effects(self, ledger: Rig) -> None:
        seen: list[int] = []

        async def handle(claim: Claim) -> Outcome:
            async with AsyncSession(ledger.engine) as session, session.begin():
                await write(session, claim)
                await ledger.client.settle_within(session, claim)
                seen.append(len(await ledger.rows()))
            seen.append(len(await ledger.rows()))
            return SETTLED

        await ledger.work(handle)
        await ledger.put("a")
        await ledger.witness.wait(events.Handled)
        assert (seen, await entries(ledger)) == ([1, 0], ["a"])

    async def test_publishes_with_the_effects(self, ledger: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            if claim.payload == b"next":
                return DONE
            async with AsyncSession(ledger.engine) as session, session.begin():
                envelope = Envelope(queue="orders", body=b"next")
                await publish(session, ledger.table, envelope, wakeups=ledger.client.wakeups)
                await ledger.client.settle_within(session, claim)
            return SETTLED

        await ledger.work(handle)
        await ledger.put("a")
        await ledger.witness.wait(events.Handled, count=2)
        await eventually(ledger.is_empty)

    async def test_finishes_a_key_for_the_next_message(self, ledger: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            async with AsyncSession(ledger.engine) as session, session.begin():
                await write(session, claim)
                await ledger.client.settle_within(session, claim)
            return SETTLED

        await ledger.work(handle, max_workers=3)
        await ledger.put("a", "b", "c", key="k")
        await ledger.witness.wait(events.Handled, count=3)
        assert await entries(ledger) == ["a", "b", "c"]


class TestRollback:
    async def test_keeps_the_message_and_nothing_else(self, ledger: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            async with AsyncSession(ledger.engine) as session, session.begin():
                await write(session, claim)
                envelope = Envelope(queue="orders", body=b"never")
                await publish(session, ledger.table, envelope, wakeups=ledger.client.wakeups)
                await ledger.client.settle_within(session, claim)
                raise ValueError("after all")
            return SETTLED

        await ledger.work(handle, retry_strategy=NoRetry())
        await ledger.put("a")
        await ledger.witness.wait(events.Died)
        (letter,) = await ledger.dead()
        assert (await entries(ledger), letter["payload"], letter["attempts_count"]) == ([], b"a", 1)
        assert await ledger.is_empty()


class TestLostLease:
    async def test_raises_and_leaves_nothing(self, ledger: Rig) -> None:
        raised: list[BaseException] = []

        async def handle(claim: Claim) -> Outcome:
            await ledger.sql("update {t} set acquired_token = gen_random_uuid()")
            try:
                async with AsyncSession(ledger.engine) as session, session.begin():
                    await write(session, claim)
                    await ledger.client.settle_within(session, claim)
            except LeaseLost as error:
                raised.append(error)
                raise
            return SETTLED

        await ledger.work(handle)
        (number,) = await ledger.put("a")
        await ledger.witness.wait(events.LeaseWasLost)
        assert str(raised[0]).startswith(f"The lease of message {number} of 'orders' is gone; roll")
        assert (await entries(ledger), (await ledger.row())["attempts_count"], await ledger.dead()) == ([], 0, [])

    async def test_taken_over_while_nobody_knew_what_became_of_the_commit(
        self, ledger: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection broke before COMMIT came to the server, and the lease ran out before that was found out."""

        async def cut(session: AsyncSession) -> None:
            await session.invalidate()
            await ledger.sql("update {t} set acquired_token = gen_random_uuid()")
            raise ConnectionResetError

        monkeypatch.setattr(AsyncSession, "commit", cut)

        async def handle(claim: Claim) -> Outcome:
            async with ledger.client.open_session() as session:
                await ledger.client.settle_within(session, claim)
                await ledger.client.commit(session, claim)
            return SETTLED

        await ledger.work(handle)
        await ledger.put("a")
        await ledger.witness.wait(events.LeaseWasLost)
        assert (await ledger.row())["attempts_count"] == 0

    @pytest.mark.slow
    async def test_taken_over_by_another_the_effects_are_there_once(self, ledger: Rig) -> None:
        """The slow one wakes up after its message was handled elsewhere."""
        wake = asyncio.Event()

        async def settle(claim: Claim) -> Outcome:
            async with AsyncSession(ledger.engine) as session, session.begin():
                await write(session, claim)
                await ledger.client.settle_within(session, claim)
            return SETTLED

        async def slow(claim: Claim) -> Outcome:
            await wake.wait()
            return await settle(claim)

        await ledger.work(slow)
        await ledger.put("a")
        await ledger.witness.wait(events.Started)
        await ledger.sql("update {t} set acquired_at = now() - interval '1 h'")
        await ledger.work(settle, client=ledger.another_client())
        await ledger.witness.wait(events.Handled)
        wake.set()
        await ledger.witness.wait(events.LeaseWasLost)
        assert (await entries(ledger), await ledger.is_empty()) == (["a"], True)


class TestConnections:
    async def test_any_connection_of_the_callers_will_do(self, ledger: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            async with ledger.engine.begin() as connection:
                await ledger.client.settle_within(connection, claim)
            return SETTLED

        await ledger.work(handle)
        await ledger.put("a")
        await ledger.witness.wait(events.Handled)
        assert await ledger.is_empty()

    @pytest.mark.slow
    async def test_a_transaction_that_stays_open_holds_up_nobody_else(self, ledger: Rig) -> None:
        """Its row is locked; leases of others are renewed and their outcomes written all the same."""
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Outcome:
            if claim.payload == b"plain":
                return DONE
            if claim.payload == b"long":
                await finish.wait()
                return DONE
            async with AsyncSession(ledger.engine) as session, session.begin():
                await ledger.client.settle_within(session, claim)
                await finish.wait()
            return SETTLED

        await ledger.work(handle, max_workers=3, lease_ttl_seconds=3.0)
        await ledger.put("within", "long")
        await ledger.witness.wait(events.Started, count=2)
        for count in range(1, 16):
            await ledger.put("plain")
            await ledger.witness.wait(events.Handled, count=count)
            await asyncio.sleep(0.25)
        finish.set()
        await ledger.witness.wait(events.Handled, count=17)
        assert (ledger.witness.of(events.LeaseWasLost), len(ledger.witness.of(events.Started))) == ([], 17)


class TestStrictIsolation:
    @pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
    def strict(self, request: pytest.FixtureRequest, ledger: Rig) -> AsyncEngine:
        """The engine, with transactions of that level."""
        return ledger.engine.execution_options(isolation_level=request.param)

    @pytest.mark.slow
    async def test_a_locked_message_is_settled_although_its_lease_was_to_be_renewed_meanwhile(
        self, ledger: Rig, strict: AsyncEngine
    ) -> None:
        async def handle(claim: Claim) -> Outcome:
            async with AsyncSession(strict) as session:
                # Begins again where a renewal comes just before the lock.
                await ledger.client.begin_within(session, claim)
                await write(session, claim)
                await asyncio.sleep(2.5)
                await ledger.client.settle_within(session, claim)
                await session.commit()
            return SETTLED

        for client in (ledger.client, ledger.another_client()):
            await ledger.work(handle, client=client, lease_ttl_seconds=2.0, **POLLING)
        await ledger.put("a")
        await ledger.witness.wait(events.Handled)
        assert (await entries(ledger), len(ledger.witness.of(events.Started))) == (["a"], 1)

    async def test_a_lost_lease_cannot_be_locked(self, ledger: Rig, strict: AsyncEngine) -> None:
        raised: list[BaseException] = []

        async def handle(claim: Claim) -> Outcome:
            await ledger.sql("update {t} set acquired_token = gen_random_uuid()")
            try:
                async with AsyncSession(strict) as session, session.begin():
                    await ledger.client.lock_within(session, claim)
            except LeaseLost as error:
                raised.append(error)
                raise
            return SETTLED

        await ledger.work(handle)
        await ledger.put("a")
        await ledger.witness.wait(events.LeaseWasLost)
        assert len(raised) == 1
