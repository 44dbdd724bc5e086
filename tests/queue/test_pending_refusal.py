"""What the server refuses is set apart, an outage is waited for, and neither is in the way of other outcomes."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox.queue import DONE, Claim, Done, NoRetry, Outcome, Retry
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Gate, Rig
from tests.waiting import eventually

LATER = Retry(3600.0)


class Tries:
    """Counts how often each statement was tried and failed."""

    def __init__(self, intercept: Intercept, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed: list[str] = []
        connect = DedicatedConnection.open

        @intercept
        async def counted(name: str, values: Mapping[str, Any], send: Send) -> Any:
            with self._counted(name):
                return await send()

        async def counted_connecting(connection: DedicatedConnection) -> None:
            with self._counted("open"):
                await connect(connection)

        monkeypatch.setattr(DedicatedConnection, "open", counted_connecting)

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.failed.append(name)
            raise

    async def wait(self, name: str, count: int) -> None:
        await eventually(lambda: self.failed.count(name) >= count, timeout=20, message=f"{name} failed {count} times")


@pytest.fixture
def tries(intercept: Intercept, monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(intercept, monkeypatch)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused several times is given up without waiting for seconds to pass."""
    monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given up, however slow the machine is."""
    monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 3600.0)


async def failing(claim: Claim) -> Done:
    """Handles what is good."""
    if claim.payload == b"good":
        return DONE
    raise ValueError("no such order")


NO_POISON = "alter table {d} add constraint no_poison check (payload <> 'poison')"


@pytest.fixture
async def poisoned(rig: Rig) -> Rig:
    """A rig whose dead letters must not be poison."""
    await rig.sql(NO_POISON)
    return rig


async def is_far_away(rig: Rig) -> bool:
    return bool(await rig.one("select bool_or(next_attempt_at = 'infinity') from {t}"))


class TestOutage:
    @pytest.fixture(params=["asyncpg", "psycopg"])
    async def role_engine(
        self, request: pytest.FixtureRequest, rig: Rig, database_url: URL
    ) -> AsyncIterator[AsyncEngine]:
        """An engine of a role of its own."""
        await rig.sql("create role refused_role login")
        await rig.sql("grant all on all tables in schema public to refused_role")
        await rig.sql("grant all on all sequences in schema public to refused_role")
        url = database_url.set(drivername=f"postgresql+{request.param}", username="refused_role")
        engine = create_async_engine(url)
        yield engine
        await rig.close()
        await engine.dispose()
        await rig.sql("drop owned by refused_role")
        await rig.sql("drop role refused_role")

    @pytest.mark.slow
    async def test_a_role_that_may_not_log_in_for_a_while_parks_nothing(
        self, rig: Rig, role_engine: AsyncEngine, tries: Tries
    ) -> None:
        async def handle(claim: Claim) -> Outcome:
            await rig.sql("alter role refused_role nologin")
            await rig.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'refused_role'")
            return LATER

        await rig.ended(events.Started, handle, "a", client=rig.another_client(engine=role_engine))
        await tries.wait("open", 3)
        await rig.sql("alter role refused_role login")
        await rig.witness.wait(events.Retried)
        assert (rig.witness.of(events.OutcomeRefused), await is_far_away(rig)) == ([], False)

    async def test_a_table_that_is_renamed_for_a_while_parks_nothing(self, driver_rig: Rig, tries: Tries) -> None:
        rig = driver_rig

        async def handle(claim: Claim) -> Outcome:
            await rig.sql("alter table {t} rename to {t}_away")
            return LATER

        await rig.ended(events.Started, handle, "a")
        await tries.wait("settle_retry", 3)
        await rig.sql("alter table {t}_away rename to {t}")
        await rig.witness.wait(events.Retried)
        assert (rig.witness.of(events.OutcomeRefused), await is_far_away(rig)) == ([], False)

    async def test_a_missing_dead_letter_table_is_waited_for_and_holds_up_no_other_outcome(
        self, driver_rig: Rig, tries: Tries
    ) -> None:
        rig = driver_rig
        await rig.sql("alter table {d} rename to {d}_away")
        await rig.work(failing, retry_strategy=NoRetry())
        await rig.put("bad")
        await tries.wait("settle_dead", 2)
        for count in (1, 2, 3):
            await rig.put("good")
            await rig.witness.wait(events.Handled, count=count)
        assert (await rig.leased(), rig.witness.of(events.OutcomeRefused)) == (1, [])
        assert rig.witness.of(events.StatementFailed)[0].role == "settle"
        await rig.sql("alter table {d}_away rename to {d}")
        await rig.witness.wait(events.Died)
        await rig.witness.wait(events.StatementWorks, role="settle")
        assert ([letter["payload"] for letter in await rig.dead()], await rig.is_empty()) == ([b"bad"], True)


class TestRefused:
    @pytest.mark.slow
    @pytest.mark.usefixtures("impatient")
    async def test_is_parked_after_several_refusals_and_in_nobodys_way(self, driver_rig: Rig, tries: Tries) -> None:
        rig = driver_rig
        await rig.sql(NO_POISON)
        await rig.work(failing, retry_strategy=NoRetry())
        (number,) = await rig.put("poison")
        refused = await rig.witness.wait(events.OutcomeRefused)
        await eventually(lambda: is_far_away(rig))
        assert (tries.failed.count("settle_dead") >= 5, "no_poison" in str(refused.error)) == (True, True)
        await rig.put("good", "bad")
        await rig.witness.wait(events.Handled)
        await rig.witness.wait(events.Died)
        assert [event.id for event in rig.witness.of(events.OutcomeRefused)] == [number]
        (row,) = await rig.sql("select payload, acquired_token, attempts_count, headers from {t}")
        assert (row["payload"], row["acquired_token"], row["attempts_count"]) == (b"poison", None, 1)
        assert row["headers"]["x-outbox-failure"].startswith("retry_terminal; dead letter refused")

    @pytest.mark.usefixtures("patient")
    async def test_a_trigger_that_gives_way_in_time_parks_nothing(self, poisoned: Rig, tries: Tries) -> None:
        await poisoned.work(failing, retry_strategy=NoRetry())
        await poisoned.put("poison")
        await tries.wait("settle_dead", 2)
        await poisoned.sql("alter table {d} drop constraint no_poison")
        await poisoned.witness.wait(events.Died)
        assert poisoned.witness.of(events.OutcomeRefused) == []

    @pytest.mark.slow
    @pytest.mark.usefixtures("patient")
    async def test_its_neighbours_are_written_before_it_is_given_up(self, poisoned: Rig) -> None:
        await poisoned.work(failing, retry_strategy=NoRetry(), max_workers=10, fetch_batch_size=100)
        await poisoned.put("poison", *["harmless"] * 200)
        await poisoned.witness.wait(events.Died, count=200)

    @pytest.mark.slow
    @pytest.mark.usefixtures("impatient")
    async def test_one_that_cannot_even_be_parked_is_in_nobodys_way(self, poisoned: Rig, tries: Tries) -> None:
        rig = poisoned
        await rig.sql("alter table {t} add constraint no_parking check (next_attempt_at < 'infinity')")
        await rig.work(failing, retry_strategy=NoRetry())
        await rig.put("poison")
        await tries.wait("settle_apart", 2)
        await rig.put("good", "bad")
        await rig.witness.wait(events.Handled)
        await rig.witness.wait(events.Died)
        assert len(rig.witness.of(events.OutcomeRefused)) == 1
        await rig.sql("alter table {t} drop constraint no_parking")
        await eventually(lambda: is_far_away(rig), timeout=20)

    @pytest.mark.usefixtures("renewed_often")
    async def test_its_lease_is_renewed_until_it_is_written(self, rig: Rig, tries: Tries) -> None:
        await rig.sql("alter table {d} rename to {d}_away")
        await rig.work(failing, retry_strategy=NoRetry(), lease_ttl_seconds=60.0)
        await rig.put("bad")
        await tries.wait("settle_dead", 1)
        await rig.witness.wait(events.LeasesRenewed, count=2)
        await rig.sql("alter table {d}_away rename to {d}")
        await rig.witness.wait(events.Died)
        assert len(rig.witness.of(events.Started)) == 1


class TestLocked:
    @pytest.mark.slow
    async def test_a_row_that_somebody_has_locked_holds_up_no_other_outcome(self, driver_rig: Rig) -> None:
        rig = driver_rig
        gate = Gate()

        async def handle(claim: Claim) -> Outcome:
            await gate(claim)
            return DONE if claim.payload == b"good" else LATER

        await rig.ended(events.Started, handle, "held", "a", "b", "good", max_workers=10, lease_ttl_seconds=3600.0)
        async with rig.engine.begin() as connection:
            await connection.execute(text(f"select 1 from {rig.table.name} where payload = 'held' for update"))
            gate.open.set()
            await rig.witness.wait(events.Retried, count=2, timeout=15)
            await rig.witness.wait(events.Handled, timeout=15)
            assert len(rig.witness.of(events.Retried)) == 2
        await rig.witness.wait(events.Retried, count=3)
        assert rig.witness.of(events.LeaseWasLost, events.OutcomeRefused) == []
