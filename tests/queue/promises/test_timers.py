"""Timers fire in order and not early, whoever sleeps and whenever they were published."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import publish
from tests.queue.rig import Rig, Seen


class Clock(Seen):
    """A handler that knows how long after its due time each message came, on the server's clock."""

    @property
    def late(self) -> list[timedelta]:
        return [claim.acquired_at - claim.next_attempt_at for claim in self.claims]


async def idle(rig: Rig, clock: Clock) -> None:
    """A worker that has looked, found nothing, and sleeps."""
    await rig.work(clock, max_workers=4)
    await rig.witness.wait(events.ListenerReady)
    await rig.put("first")
    await rig.witness.wait(events.Handled)
    clock.claims.clear()


class TestOrder:
    @pytest.mark.slow
    @pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
    async def test_is_that_of_their_due_times(self, driver_rig: Rig, key: str | None) -> None:
        clock = Clock()
        await idle(driver_rig, clock)
        # Those of a key that are all due come by their ids: the first of these is due when nobody waits for it.
        first, later = ("c", 0.6 if key is None else 3600.0), [("a", 0.2), ("b", 0.4)]
        await driver_rig.publish(
            *(
                Envelope(queue="orders", body=body.encode(), activate_in=timedelta(seconds=seconds), key=key)
                for body, seconds in (first, *later)
            )
        )
        expected = ["a", "b", *("c" for _ in range(key is None))]
        await driver_rig.witness.wait(events.Handled, count=1 + len(expected))
        assert clock.bodies == expected

    @pytest.mark.slow
    async def test_holds_for_those_that_were_published_before_the_start(self, driver_rig: Rig) -> None:
        clock = Clock()
        for body, seconds in (("b", 0.5), ("a", 0.3)):
            await driver_rig.put(body, due_in=seconds)
        await driver_rig.work(clock, max_workers=1)
        await driver_rig.witness.wait(events.Handled, count=2)
        assert clock.bodies == ["a", "b"]

    @pytest.mark.slow
    async def test_none_is_early(self, driver_rig: Rig) -> None:
        clock = Clock()
        await idle(driver_rig, clock)
        for number in range(20):
            await driver_rig.put("x", due_in=0.02 * number)
        await driver_rig.put("x", activate_at=datetime.now(UTC) + timedelta(seconds=0.4))
        await driver_rig.witness.wait(events.Handled, count=22)
        assert min(clock.late) >= timedelta(0)


class TestSleeper:
    @pytest.mark.parametrize("is_other", [False, True], ids=["its own client", "another client"])
    async def test_is_woken_by_an_earlier_timer_that_is_published_later(self, rig: Rig, is_other: bool) -> None:
        clock = Clock()
        await idle(rig, clock)
        client = rig.another_client() if is_other else None
        await rig.put("tomorrow", due_in=86_400, client=client)
        await rig.put("soon", due_in=0.2, client=client)
        await rig.witness.wait(events.Handled, count=2)
        assert clock.bodies == ["soon"]

    async def test_is_woken_where_nobody_saw_the_commit(self, rig: Rig) -> None:
        clock = Clock()
        await idle(rig, clock)
        await rig.sql(
            "insert into {t} (queue, payload, next_attempt_at) values ('orders', 'soon', now() + interval '0.3 s')"
        )
        await rig.witness.wait(events.Handled, count=2)
        assert clock.bodies == ["soon"]

    async def test_finds_the_timer_that_was_published_together_with_a_message_for_now(self, rig: Rig) -> None:
        clock = Clock()
        await idle(rig, clock)
        await rig.publish(
            Envelope(queue="orders", body=b"now"),
            Envelope(queue="orders", body=b"soon", activate_in=timedelta(seconds=0.3)),
        )
        await rig.witness.wait(events.Handled, count=3)
        assert clock.bodies == ["now", "soon"]

    @pytest.mark.slow
    async def test_wakes_for_the_second_of_two_timers(self, rig: Rig) -> None:
        clock = Clock()
        await idle(rig, clock)
        for priority in (0, 3):
            await rig.put("a", "b", due_in=0.2 + priority / 10, priority=priority)
        await rig.witness.wait(events.Handled, count=5)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("delay", "stays_open", "late"), [(3.0, 2.9, 2.5), (0.2, 2.0, 30.0)], ids=["nearly used up", "used up"]
    )
    async def test_does_not_count_the_time_between_publishing_and_commit_twice(
        self, rig: Rig, delay: float, stays_open: float, late: float
    ) -> None:
        """The delay counts from the publishing; a transaction that stays open uses it up."""
        clock = Clock()
        await idle(rig, clock)
        envelope = Envelope(queue="orders", body=b"x", activate_in=timedelta(seconds=delay))
        async with AsyncSession(rig.engine) as session, session.begin():
            await publish(session, rig.table, envelope, wakeups=rig.client.wakeups)
            await asyncio.sleep(stays_open)
        await rig.witness.wait(events.Handled, count=2)
        assert clock.late[0] < timedelta(seconds=late)

    @pytest.mark.slow
    async def test_handles_a_time_in_the_past_at_once(self, driver_rig: Rig) -> None:
        clock = Clock()
        await idle(driver_rig, clock)
        await driver_rig.put("x", activate_at=datetime.now(UTC) - timedelta(days=400))
        await driver_rig.witness.wait(events.Handled, count=2)
