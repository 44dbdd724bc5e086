"""Settling in the handler's own transaction: effects, messages and the finishing commit together or not at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import LeaseLost
from faststream_outbox.publish import publish
from faststream_outbox.queue import SETTLED, Claim, NoRetry, Outcome
from tests.queue.rig import POLLING, Gate, Rig, done
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


def settling(rig: Rig, *published: Envelope, error: Exception | None = None) -> Callable[[Claim], Awaitable[Outcome]]:
    """A handler whose entry, messages and settling are one transaction, which ends with the error if there is one."""

    async def handle(claim: Claim) -> Outcome:
        async with AsyncSession(rig.engine) as session, session.begin():
            await write(session, claim)
            await publish(session, rig.table, *published, wakeups=rig.client.wakeups)
            await rig.client.settle_within(session, claim)
            if error is not None:
                raise error
        return SETTLED

    return handle


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

        await ledger.ended(events.Handled, handle, "a")
        assert (seen, await entries(ledger)) == ([1, 0], ["a"])

    async def test_publishes_with_the_effects(self, ledger: Rig) -> None:
        handle = settling(ledger, Envelope(queue="mails", body=b"next"))
        await ledger.work(done, "mails")
        await ledger.ended(events.Handled, handle, "a")
        await ledger.witness.wait(events.Handled, queue="mails")
        await eventually(ledger.is_empty)

    async def test_finishes_a_key_for_the_next_message(self, ledger: Rig) -> None:
        await ledger.ended(events.Handled, settling(ledger), *"abc", key="k", max_workers=3)
        assert await entries(ledger) == ["a", "b", "c"]

    async def test_rollback_keeps_the_message_and_nothing_else(self, ledger: Rig) -> None:
        handle = settling(ledger, Envelope(queue="orders", body=b"never"), error=ValueError("after all"))
        await ledger.ended(events.Died, handle, "a", retry_strategy=NoRetry())
        (letter,) = await ledger.dead()
        assert (await entries(ledger), letter["payload"], letter["attempts_count"]) == ([], b"a", 1)
        assert await ledger.is_empty()


class TestLostLease:
    @pytest.mark.parametrize(
        ("level", "step"),
        [
            ("READ COMMITTED", "settle_within"),
            ("REPEATABLE READ", "lock_within"),
            ("SERIALIZABLE", "lock_within"),
        ],
    )
    async def test_raises_and_leaves_nothing(self, ledger: Rig, level: str, step: str) -> None:
        raised: list[BaseException] = []

        async def handle(claim: Claim) -> Outcome:
            await ledger.lease()
            try:
                async with AsyncSession(ledger.engine.execution_options(isolation_level=level)) as session:
                    await write(session, claim)
                    await getattr(ledger.client, step)(session, claim)
            except LeaseLost as error:
                raised.append(error)
                raise
            return SETTLED

        await ledger.ended(events.LeaseWasLost, handle, "a")
        row = await ledger.row()
        assert str(raised[0]).startswith(f"The lease of message {row['id']} of 'orders' is gone; roll")
        assert (await entries(ledger), row["attempts_count"], await ledger.dead()) == ([], 0, [])

    async def test_taken_over_while_nobody_knew_what_became_of_the_commit(
        self, ledger: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection broke before COMMIT came to the server, and the lease ran out before that was found out."""

        async def cut(session: AsyncSession) -> None:
            await session.invalidate()
            await ledger.lease()
            raise ConnectionResetError

        monkeypatch.setattr(AsyncSession, "commit", cut)

        async def handle(claim: Claim) -> Outcome:
            async with ledger.client.open_session() as session:
                await ledger.client.settle_within(session, claim)
                await ledger.client.commit(session, claim)
            return SETTLED

        await ledger.ended(events.LeaseWasLost, handle, "a")
        assert (await ledger.row())["attempts_count"] == 0

    @pytest.mark.slow
    async def test_taken_over_by_another_the_effects_are_there_once(self, ledger: Rig) -> None:
        """The slow one wakes up after its message was handled elsewhere."""
        wake, settle = asyncio.Event(), settling(ledger)

        async def slow(claim: Claim) -> Outcome:
            await wake.wait()
            return await settle(claim)

        await ledger.ended(events.Started, slow, "a")
        await ledger.sql("update {t} set acquired_at = now() - interval '1 h'")
        await ledger.work(settle, client=ledger.another_client())
        await ledger.witness.wait(events.Handled)
        wake.set()
        await ledger.witness.wait(events.LeaseWasLost)
        assert (await entries(ledger), await ledger.is_empty()) == (["a"], True)


@pytest.mark.slow
async def test_a_transaction_that_stays_open_holds_up_nobody_else(ledger: Rig) -> None:
    """Its row is locked; leases of others are renewed and their outcomes written all the same."""
    gate = Gate()

    async def handle(claim: Claim) -> Outcome:
        if claim.payload != b"within":
            return await gate(claim)
        # Any connection of the caller's will do.
        async with ledger.engine.begin() as connection:
            await ledger.client.settle_within(connection, claim)
            await gate(claim)
        return SETTLED

    await ledger.ended(events.Started, handle, "within", "long", max_workers=3, lease_ttl_seconds=3.0)
    for count in range(1, 16):
        await ledger.put("quick")
        await ledger.witness.wait(events.Handled, count=count)
        await asyncio.sleep(0.25)
    gate.open.set()
    await ledger.witness.wait(events.Handled, count=17)
    assert (ledger.witness.of(events.LeaseWasLost), len(ledger.witness.of(events.Started))) == ([], 17)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_locked_message_is_settled_although_its_lease_was_to_be_renewed_meanwhile(
    ledger: Rig, level: str
) -> None:
    async def handle(claim: Claim) -> Outcome:
        async with AsyncSession(ledger.engine.execution_options(isolation_level=level)) as session:
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
