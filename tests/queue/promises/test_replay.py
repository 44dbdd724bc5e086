"""Replay: a frozen selection goes back under its own names, in order, as fast as it may."""

import asyncio
from itertools import product

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import InvalidOption
from faststream_outbox.queue import DONE, Claim, Dead, DeadLetters, Outcome, Replay, Selection
from tests.queue.rig import Rig
from tests.waiting import eventually

ALL = Selection(everything=True)
MESSAGES = [(b"a", None), (b"old", "t"), (b"b", None)]


class Mortal:
    """A handler that kills what it gets until it is told to be kind."""

    def __init__(self) -> None:
        self.is_kind = False
        self.bodies: list[str] = []
        self.counts: list[tuple[int, int]] = []

    async def __call__(self, claim: Claim) -> Outcome:
        self.bodies.append(claim.payload.decode())
        self.counts.append((claim.attempts_count, claim.deliveries_count))
        return DONE if self.is_kind else Dead()


async def bury(rig: Rig, *bodies: str, key: str | None = None) -> Mortal:
    """Let these messages die, and stop."""
    mortal = Mortal()
    before = len(rig.witness.of(events.Died))
    await rig.put(*bodies, key=key)
    worker = await rig.work(mortal)
    await rig.witness.wait(events.Died, count=before + len(bodies))
    await worker.stop()
    mortal.is_kind = True
    mortal.bodies.clear()
    return mortal


async def bodies(rig: Rig) -> list[str]:
    return [row["payload"].decode() for row in await rig.rows()]


async def test_a_dry_run_counts_and_changes_nothing(driver_rig: Rig) -> None:
    await bury(driver_rig, *"abc")
    before = await driver_rig.dead()
    assert await driver_rig.letters.replay(ALL, dry_run=True) == Replay(selected=3)
    assert (await driver_rig.dead(), await driver_rig.is_empty()) == (before, True)


class TestMessage:
    async def test_keeps_its_ids_and_starts_counting_anew(self, driver_rig: Rig) -> None:
        mortal = await bury(driver_rig, "a")
        (letter,) = await driver_rig.letters.find(ALL)
        await driver_rig.letters.replay(ALL)
        row = await driver_rig.row()
        assert (row["id"], row["message_id"]) == (letter.original_id, letter.message_id)
        assert (row["created_at"], row["first_attempt_at"]) == (letter.created_at, None)
        await driver_rig.work(mortal)
        await driver_rig.witness.wait(events.Handled)
        assert mortal.counts == [(0, 1), (0, 1)]

    async def test_is_handled_at_once_by_who_sleeps(self, driver_rig: Rig) -> None:
        mortal = Mortal()
        await driver_rig.ended(events.Died, mortal, "a", "b")
        mortal.is_kind = True
        await driver_rig.letters.replay(ALL)
        await driver_rig.witness.wait(events.Handled, count=2)

    async def test_of_a_key_comes_in_its_old_order(self, driver_rig: Rig) -> None:
        numbers = [f"{number:02}" for number in range(12)]
        mortal = await bury(driver_rig, *numbers, key="k")
        await driver_rig.put("99", key="k")
        await driver_rig.work(mortal, max_workers=4, fetch_batch_size=3)
        await driver_rig.witness.wait(events.Handled)
        mortal.bodies.clear()
        await driver_rig.letters.replay(ALL, slice_size=5)
        await driver_rig.witness.wait(events.Handled, count=13)
        assert mortal.bodies == numbers

    async def test_goes_before_what_was_published_after_it(self, driver_rig: Rig) -> None:
        mortal = await bury(driver_rig, "old", key="k")
        await driver_rig.put("new", key="k")
        await driver_rig.letters.replay(ALL)
        await driver_rig.work(mortal)
        await driver_rig.witness.wait(events.Handled, count=2)
        assert mortal.bodies == ["old", "new"]


async def test_what_dies_meanwhile_is_not_part_of_it(rig: Rig) -> None:
    """Replayed messages that die again at once must not be replayed by the same call."""
    mortal = await bury(rig, *(f"{number:02}" for number in range(20)))
    mortal.is_kind = False
    await rig.work(mortal)
    died = len(rig.witness.of(events.Died))

    def next_slice(progress: Replay) -> None:
        assert progress.replayed <= 20

    replay = await rig.letters.replay(ALL, slice_size=2, on_progress=next_slice, rate=200)
    await rig.witness.wait(events.Died, count=died + 20)
    assert (replay, len(mortal.bodies), len(await rig.dead())) == (Replay(20, 20), 20, 20)


class TestRate:
    @pytest.fixture
    def pauses(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """How long a replay would have slept."""
        slept: list[float] = []
        sleep = asyncio.sleep

        async def counted(seconds: float) -> None:
            slept.append(seconds)
            await sleep(0)

        monkeypatch.setattr("faststream_outbox._internal.queue.dead_letters.asyncio.sleep", counted)
        return slept

    async def test_without_one_there_is_no_pause(self, rig: Rig, pauses: list[float]) -> None:
        await bury(rig, *"abcdef")
        pauses.clear()
        await rig.letters.replay(ALL, slice_size=2)
        assert sum(pauses) < 0.2

    @pytest.mark.slow
    @pytest.mark.parametrize("rate", [0.5, 2, 3])
    async def test_slices_and_pauses_keep_to_it(self, rig: Rig, pauses: list[float], rate: float) -> None:
        await bury(rig, *"abcdef")
        steps: list[int] = []
        pauses.clear()
        await rig.letters.replay(ALL, rate=rate, on_progress=lambda progress: steps.append(progress.replayed))
        sizes = [later - earlier for earlier, later in zip([0, *steps], steps, strict=False)]
        assert max(sizes) <= max(1, rate)
        assert sum(pauses) >= (6 - sizes[-1]) / rate

    async def test_that_cannot_be_is_refused(self, rig: Rig) -> None:
        for call, rate in product((rig.letters.replay, rig.letters.purge), (0, -1, float("nan"))):
            with pytest.raises(InvalidOption, match="rate must be a number of messages a second above 0"):
                await call(ALL, rate=rate)

    async def test_progress_is_told_after_each_slice(self, rig: Rig) -> None:
        await bury(rig, *"abcde")
        steps: list[Replay] = []
        await rig.letters.replay(ALL, slice_size=2, on_progress=steps.append)
        assert steps == [Replay(5, 2), Replay(5, 4), Replay(5, 5)]


async def test_a_taken_timer_id_keeps_the_letter_which_is_reported_until_it_is_free(driver_rig: Rig) -> None:
    rig = driver_rig
    mortal = Mortal()
    await rig.publish(*(Envelope(queue="orders", body=body, timer_id=timer) for body, timer in MESSAGES))
    worker = await rig.work(mortal)
    await rig.witness.wait(events.Died, count=3)
    await worker.stop()
    await rig.put("new", timer_id="t")
    (conflict,) = [letter.id for letter in await rig.letters.find(ALL) if letter.timer_id]
    replay = await rig.letters.replay(ALL, slice_size=1)
    assert replay == Replay(selected=3, replayed=2, conflicts=(conflict,))
    assert [row["payload"] for row in await rig.dead()] == [b"old"]
    assert sorted(await bodies(rig)) == ["a", "b", "new"]
    await rig.sql("delete from {t}")
    assert await rig.letters.replay(ALL) == Replay(1, 1)


class TestEditAndReplay:
    async def test_puts_the_mended_message_back(self, driver_rig: Rig) -> None:
        mortal = await bury(driver_rig, "broken", "other")
        (letter,) = [each for each in await driver_rig.letters.find(ALL) if each.payload == b"broken"]
        replay = await driver_rig.letters.edit_and_replay(letter.id, payload=b"repaired", headers={"by": "me"})
        await driver_rig.work(mortal)
        await driver_rig.witness.wait(events.Handled)
        await eventually(driver_rig.is_empty)
        assert (replay, mortal.bodies, len(await driver_rig.dead())) == (Replay(1, 1), ["repaired"], 1)

    async def test_of_one_that_is_not_there_does_nothing(self, driver_rig: Rig) -> None:
        assert await driver_rig.letters.edit_and_replay(9999, payload=b"x") == Replay(0)


class TestBehindTheSequence:
    """The database was restored without its sequence: ids that were drawn will be drawn again."""

    @pytest.mark.parametrize("gap", [5, 50_000])
    async def test_what_is_published_after_a_replay_does_not_meet_it(self, driver_rig: Rig, gap: int) -> None:
        await bury(driver_rig, "a", "b")
        await driver_rig.sql("update {d} set original_id = original_id + :gap", gap=gap)
        await driver_rig.sql("select setval(pg_get_serial_sequence('{t}', 'id'), 1, false)")
        await driver_rig.letters.replay(ALL)
        top = (await driver_rig.rows())[-1]["id"]
        ids = await driver_rig.put(*["x"] * 10)
        assert min(ids) > top > gap

    async def test_a_sequence_that_is_ahead_stays_where_it_is(self, rig: Rig) -> None:
        await bury(rig, "a")
        (before,) = await rig.put("x")
        await rig.letters.replay(ALL)
        (after,) = await rig.put("y")
        assert after == before + 1

    async def test_a_role_that_may_not_use_the_sequence_can_replay(self, rig: Rig) -> None:
        await bury(rig, "a")
        await rig.sql("create role operator_of_{t}")
        await rig.sql("grant select, insert, delete, update on {t}, {d} to operator_of_{t}")
        operator = create_async_engine(
            rig.engine.url, connect_args={"server_settings": {"role": f"operator_of_{rig.table.name}"}}
        )
        try:
            letters = DeadLetters(rig.another_client(engine=operator))
            assert (await letters.replay(ALL)).replayed == 1
        finally:
            await operator.dispose()
            await rig.sql("drop owned by operator_of_{t}")
            await rig.sql("drop role operator_of_{t}")
