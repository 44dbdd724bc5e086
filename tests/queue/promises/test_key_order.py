"""Order per key: one message of a key at a time, whoever handles it, whatever becomes of it."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise, product
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue.plan import TRY_AGAIN_SECONDS
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Dead, Done, Outcome, Retry, Selection
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, QUIET_SECONDS, Gate, Rig, Seen
from tests.waiting import eventually


class Keys:
    """A handler that notes the order within each key and two at a time of one."""

    def __init__(self, pause: float = 0.001) -> None:
        self.order: dict[str, list[int]] = defaultdict(list)
        self.running: Counter[str] = Counter()
        self.together: list[str] = []
        self.pause = pause

    async def __call__(self, claim: Claim) -> Outcome:
        key = claim.key or ""
        self.running[key] += 1
        if self.running[key] > 1:
            self.together.append(key)
        self.order[key].append(int(claim.payload))
        await asyncio.sleep(self.pause)
        self.running[key] -= 1
        return self.answer(claim)

    def answer(self, claim: Claim) -> Outcome:
        return DONE

    def is_ordered(self) -> bool:
        """Each number is the one before or its successor: repeats are retries, gaps and steps back are not."""
        return all(
            numbers[0] == 0 and all(later - earlier in (0, 1) for earlier, later in pairwise(numbers))
            for numbers in self.order.values()
        )


def dying_once() -> Seen:
    """A handler of which `a` dies the first time."""
    handle = Seen(lambda claim: Dead() if claim.payload == b"a" and handle.bodies.count("a") == 1 else DONE)
    return handle


async def backlog(rig: Rig, keys: int, each: int) -> None:
    numbers = product(range(each), range(keys))
    await rig.publish(*(Envelope(queue="orders", body=b"%d" % number, key=f"k{key}") for number, key in numbers))


class TestOneAtATime:
    """graphile#621: a batch took several jobs of one serial queue, for several workers."""

    @pytest.mark.parametrize("clients", [1, 2, 4])
    @pytest.mark.parametrize("keys", [1, 7])
    async def test_no_two_messages_of_a_key_run_together(self, rig: Rig, keys: int, clients: int) -> None:
        handle = Keys()
        await backlog(rig, keys, each=40)
        others = [rig.another_client() for _ in range(clients - 1)]
        for client in (rig.client, *others):
            await rig.work(handle, client=client, max_workers=8, fetch_batch_size=20)
        await rig.witness.wait(events.Handled, count=40 * keys)
        assert (handle.together, handle.is_ordered(), len(rig.witness.of(events.Started))) == ([], True, 40 * keys)

    async def test_messages_published_while_the_key_is_busy_wait_for_it(self, rig: Rig) -> None:
        handle = Keys(pause=0.01)
        for client in (rig.client, rig.another_client()):
            await rig.work(handle, client=client, max_workers=4)
        for number in range(30):
            await rig.put(str(number), key="k")
        await rig.witness.wait(events.Handled, count=30)
        assert (handle.together, handle.is_ordered()) == ([], True)

    async def test_different_keys_run_together_and_the_same_key_of_two_queues_is_two(self, rig: Rig) -> None:
        gate = Gate()
        await backlog(rig, keys=5, each=2)
        await rig.put("0", key="k0", queue="mails")
        await rig.work(gate, ["orders", "mails"], max_workers=6)
        await rig.witness.wait(events.Started, count=6)
        gate.open.set()
        await rig.witness.wait(events.Handled, count=11)

    async def test_a_key_that_two_claims_gave_up_for_each_other_is_asked_for_again(
        self, rig: Rig, sent: list[str]
    ) -> None:
        """A rival of a longer run locks what lies beyond ours and lets it go: neither of the two got the key."""
        handle = Keys()
        await backlog(rig, keys=1, each=3)
        async with rig.engine.connect() as rival:
            lock = text(f"select from {rig.table.name} where payload = '1' for update")
            await rival.execute(lock)
            await rig.work(handle, max_workers=1, fetch_batch_size=1)
            await eventually(lambda: sent.count("claim_keys") >= 3, message="asked for again and again")
            await rival.rollback()
        await rig.witness.wait(events.Handled, count=3)
        assert handle.is_ordered()

    async def test_a_key_that_stays_locked_is_left_to_the_next_look(self, rig: Rig, sent: list[str]) -> None:
        await backlog(rig, keys=1, each=2)
        async with rig.engine.connect() as other:
            await other.execute(text(f"select from {rig.table.name} where payload = '1' for update"))
            await rig.work(Keys(), max_workers=1, fetch_batch_size=1)
            await eventually(lambda: sent.count("claim_keys") >= len(TRY_AGAIN_SECONDS))
            await rig.put("0", queue="mails", due_in=3 * TRY_AGAIN_SECONDS[-1])
            await rig.work(Keys(), "mails")
            await rig.witness.wait(events.Handled)
            assert sent.count("claim_keys") <= 2 * (1 + len(TRY_AGAIN_SECONDS))

    @pytest.mark.slow
    @pytest.mark.parametrize(("late", "replayed"), [(1, False), (10, False), (100, False), (1, True), (100, True)])
    async def test_a_lower_id_that_appears_late_does_not_join_a_busy_key(
        self, rig: Rig, sent: list[str], late: int, replayed: bool
    ) -> None:
        """Its transaction ended last, or it is replayed, and the key is at work elsewhere."""
        gate = Gate()
        running: list[bytes] = []

        async def handle(claim: Claim) -> Done:
            running.append(claim.payload)
            return await gate(claim) if claim.payload == b"busy" else DONE

        envelopes = [Envelope(queue="orders", body=b"late", key="k") for _ in range(late)]
        if replayed:
            await rig.publish(*envelopes)
            undertaker = await rig.work(Seen(lambda claim: Dead()))
            await rig.witness.wait(events.Died, count=late)
            await undertaker.stop()
        async with rig.engine.connect() as slow:
            if not replayed:
                await publish(slow, rig.table, *envelopes)
            await rig.work(handle)
            await rig.put("busy", key="k")
            await rig.witness.wait(events.Started, size_bytes=len("busy"), count=1 + replayed * late)
            await rig.work(handle, client=rig.another_client(), **POLLING)
            await slow.commit()
        if replayed:
            await rig.letters.replay(Selection(everything=True))
        await rig.put("other", key="other")
        await eventually(lambda: b"other" in running)
        sent.clear()
        await eventually(lambda: sent.count("claimable_keys") > 3, message="the other client has looked several times")
        before = running.count(b"late")
        gate.open.set()
        await eventually(rig.is_empty)
        assert (before, running.count(b"late")) == (0, late)

    async def test_a_run_that_was_overtaken_before_it_began_is_given_back(self, rig: Rig, intercept: Intercept) -> None:
        """Lower ids appear after the claim has read the key, and before it is known to others."""
        async with rig.engine.connect() as slow:
            await publish(slow, rig.table, *(Envelope(queue="orders", body=b"%d" % n, key="k") for n in range(3)))

            @intercept
            async def late(name: str, values: Mapping[str, Any], send: Send) -> Any:
                if name == "overtaken" and slow.in_transaction():
                    await slow.commit()
                return await send()

            handle = Keys()
            await rig.work(handle)
            await rig.put("3", key="k")
            await rig.witness.wait(events.Handled, count=4)
        assert handle.order["k"] == [0, 1, 2, 3]

    async def test_a_run_of_which_that_cannot_be_asked_is_given_back(self, rig: Rig, intercept: Intercept) -> None:
        failures = iter([ConnectionError("lost")])

        @intercept
        async def failing(name: str, values: Mapping[str, Any], send: Send) -> Any:
            if name == "overtaken" and (error := next(failures, None)) is not None:
                raise error
            return await send()

        handle = Keys()
        await rig.ended(events.Handled, handle, "0", "1", key="k")
        assert (handle.order["k"], handle.together) == ([0, 1], [])


class TestRetries:
    @pytest.mark.parametrize("clients", [1, 2])
    async def test_order_holds_across_retries_and_clients(self, rig: Rig, clients: int) -> None:
        """River#971: retrying several members of a sequence broke its order."""

        class Shaky(Keys):
            def answer(self, claim: Claim) -> Outcome:
                shaky = (claim.id * 7 + claim.attempts_count) % 3 == 0 and claim.attempts_count < 4
                return Retry(0.01) if shaky else DONE

        handle = Shaky()
        await backlog(rig, keys=5, each=20)
        for client in (rig.client, *(rig.another_client() for _ in range(clients - 1))):
            await rig.work(handle, client=client, max_workers=4, fetch_batch_size=20)
        await rig.witness.wait(events.Handled, count=100)
        assert (handle.together, handle.is_ordered()) == ([], True)
        assert len(rig.witness.of(events.Retried)) >= 20

    async def test_the_next_message_waits_for_the_retry_of_the_one_before(self, rig: Rig) -> None:
        handle = Seen(lambda claim: Retry(0.3) if claim.payload == b"a" and not claim.attempts_count else DONE)
        await rig.work(handle, max_workers=3)
        await rig.put("a", "b", key="k")
        await rig.witness.wait(events.Retried)
        await rig.put("other", key="other")
        await rig.witness.wait(events.Handled, count=3)
        assert handle.bodies == ["a", "other", "a", "b"]

    async def test_a_later_due_time_does_not_hold_the_key(self, rig: Rig) -> None:
        """A timer has a key to be in order with what is due at its time, not to stop what is due before."""
        handle = Keys()
        await rig.put("9", key="k", due_in=3600)
        await rig.put("0", "1", key="k")
        await rig.work(handle)
        await rig.witness.wait(events.Handled, count=2)
        assert handle.order["k"] == [0, 1]


class TestDeath:
    async def test_the_next_one_waits_until_the_letter_is_written(self, rig: Rig) -> None:
        """Or it would be done, and the first one handled again, where the letter cannot be written in time."""
        handle = dying_once()
        waiting = "select exists (select from pg_locks where relation = cast('{d}' as regclass) and not granted)"
        async with rig.engine.begin() as connection:
            await connection.execute(text(f"lock table {rig.dlq_table.name} in share mode"))
            # Who knows that its handler is quick takes several messages of a key at once.
            await rig.ended(events.Handled, handle, "first")
            await rig.put("a", "b", key="k")
            await eventually(lambda: rig.one(waiting), message="somebody waits")
            assert handle.bodies == ["first", "a"]
        await eventually(rig.is_empty)
        assert handle.bodies == ["first", "a", "b"]

    async def test_block_holds_the_key_and_no_other(self, rig: Rig) -> None:
        await rig.work(dying_once(), on_dead="block", max_workers=2, **POLLING)
        await rig.put("a", "b", "c", key="k")
        await rig.witness.wait(events.Died)
        for count in range(1, 6):
            await rig.put("d", key="other")
            await rig.put("e", key="k")
            await rig.witness.wait(events.Handled, count=count)
        rows = await rig.rows()
        assert ({row["key"] for row in rows}, {row["acquired_token"] for row in rows}) == ({"k"}, {None})
        assert [row["payload"] for row in rows] == [b"b", b"c", *[b"e"] * 5]

    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["replay", "purge"])
    async def test_a_blocked_key_goes_on_in_order_when_the_dead_letter_is_gone(self, rig: Rig, way: str) -> None:
        handle = dying_once()
        await rig.work(handle, on_dead="block", max_workers=2)
        await rig.put("a", "b", "c", key="k")
        await rig.witness.wait(events.Died)
        # Until nobody looks any more.
        await asyncio.sleep(QUIET_SECONDS)
        await getattr(rig.letters, way)(Selection(key="k"))
        await eventually(rig.is_empty)
        assert handle.bodies == (["a", "a", "b", "c"] if way == "replay" else ["a", "b", "c"])


class TestTakeover:
    async def test_a_key_whose_holders_lease_ran_out_is_taken_over(self, rig: Rig) -> None:
        handle = Keys()
        await rig.put("0", "1", "2", key="k")
        await rig.lease("payload in ('0', '1')", ago="1 h")
        await rig.work(handle)
        await rig.witness.wait(events.Handled, count=3)
        assert (handle.order["k"], handle.together) == ([0, 1, 2], [])

    @pytest.mark.slow
    async def test_a_key_whose_holders_lease_runs_out_later_is_found(self, rig: Rig) -> None:
        handle = Keys()
        await rig.put("0", "1", key="k")
        await rig.lease()
        await rig.work(handle, lease_ttl_seconds=1.0, **POLLING)
        await rig.witness.wait(events.Handled, count=2)
        assert handle.order["k"] == [0, 1]

    async def test_a_key_is_not_taken_over_while_any_of_its_messages_is_leased(self, rig: Rig) -> None:
        async with rig.engine.connect() as looking:
            await rig.put("0", "1", "2", key="k")
            await rig.lease("payload = '0'", ago="1 h")
            await rig.lease("payload = '1'")
            await rig.work(Keys(), **POLLING)
            await rig.put("0", key="other")
            await rig.witness.wait(events.Handled)
            rows = await looking.execute(text(f"select deliveries_count from {rig.table.name} order by id"))
            assert rows.scalars().all() == [1, 1, 0]
