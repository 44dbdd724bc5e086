"""The ring of keys: none twice while in flight, none forgotten, each in its turn."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faststream_outbox._internal.queue.keys import LOW_PRIORITY_TURN, Key, KeyRing
from tests.cases import each

KEYS: list[Key] = [(queue, key) for queue in ("orders", "mails") for key in "abc"]


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing()


class TestLine:
    @pytest.mark.parametrize(("left", "taken"), [(1, 12), (2, 6), (8, 4)], ids=["one", "two", "many"])
    def test_keys_with_more_messages_are_asked_for_in_longer_runs(self, left: int, taken: int) -> None:
        ring = KeyRing()
        for number in range(20):
            key = ("orders", str(number))
            ring.hold(key, messages=1, next_id=7, left=left)
            ring.settled(key, 0, more=True)
        assert len(ring.take(12, executors=4)) == taken

    @pytest.mark.parametrize(("left", "taken"), [(None, 12), (1, 6), (2, 4), (3, 3), (40, 1)])
    def test_keys_seen_for_the_first_time_are_asked_for_in_runs_that_others_had(
        self, ring: KeyRing, left: int | None, taken: int
    ) -> None:
        for number in range(100):
            ring.hold(("orders", str(number)), messages=1, next_id=None if left is None else 7, left=left or 0)
        for number in range(20):
            ring.found(("mails", str(number)), 0)
        assert len(ring.take(12, executors=1)) == taken

    def test_the_lowest_priority_has_its_turn_however_runs_fill_the_room(self, ring: KeyRing) -> None:
        most = LOW_PRIORITY_TURN - 1
        names = [("orders", f"high{number}") for number in range(4 * most)]
        for key in [*names, ("orders", "low")]:
            ring.hold(key, messages=1, next_id=7, left=2)
            ring.settled(key, -1 if key[1] == "low" else 1, more=True)
        # One short of another run: each time the room ends where the lowest priority would have its turn.
        assert ("orders", "low") in {**ring.take(2 * most + 1, executors=1), **ring.take(2 * most + 1, executors=1)}

    def test_no_key_is_taken_for_half_of_its_run(self, ring: KeyRing) -> None:
        for key in KEYS[:3]:
            ring.hold(key, messages=1, next_id=7, left=3)
            ring.settled(key, 0, more=True)
        assert list(ring.take(8, executors=1)) == KEYS[:2]

    @each(
        ("what", "found", "taken"),
        [
            ("a key found twice comes once", [(0, 0), (0, 0)], [0]),
            ("a higher priority goes first", [(0, 0), (1, 5)], [1, 0]),
            ("a key that is found with a higher priority moves forward", [(0, 0), (1, 3), (0, 5)], [0, 1]),
            ("a key that is found with a lower priority stays", [(0, 5), (1, 3), (0, 0)], [0, 1]),
        ],
    )
    def test_keys_come_by_their_highest_priority(self, what: str, found: list[Any], taken: list[int]) -> None:
        ring = KeyRing()
        for number, priority in found:
            ring.found(KEYS[number], priority)
        assert list(ring.take(5)) == [KEYS[number] for number in taken]

    def test_keys_come_in_the_order_in_which_they_were_found(self, ring: KeyRing) -> None:
        for key in KEYS:
            ring.found(key, 0)
        assert [*ring.take(4), *ring.take(9)] == KEYS

    def test_the_lowest_priority_has_a_turn_now_and_then(self, ring: KeyRing) -> None:
        ring.found(("orders", "low"), -1)
        for number in range(LOW_PRIORITY_TURN * 2):
            ring.found(("orders", f"high{number}"), 1)
        assert ("orders", "low") in ring.take(LOW_PRIORITY_TURN)

    def test_a_key_that_was_settled_goes_to_the_back(self, ring: KeyRing) -> None:
        ring.found(KEYS[0], 0)
        ring.hold(*ring.take(1), messages=1)
        ring.found(KEYS[1], 0)
        ring.settled(KEYS[0], 0, more=True)
        assert list(ring.take(2)) == [KEYS[1], KEYS[0]]

    def test_its_length_is_the_number_of_keys_that_wait(self, ring: KeyRing) -> None:
        for key in KEYS:
            ring.found(key, 0)
        ring.hold(*ring.take(1), messages=1)
        assert len(ring) == len(KEYS) - 1


class TestInHand:
    def test_a_key_in_hand_is_not_taken_when_it_is_found_again(self, ring: KeyRing) -> None:
        ring.hold(KEYS[0], messages=2)
        ring.found(KEYS[0], 0)
        assert not ring.take(1)

    def test_it_stays_in_hand_until_its_last_message_is_settled(self, ring: KeyRing) -> None:
        ring.hold(KEYS[0], messages=2)
        held = []
        for _ in range(2):
            ring.settled(KEYS[0], 0, more=False)
            held.append(ring.is_held(KEYS[0]))
        assert held == [True, False]

    @pytest.mark.parametrize("mores", [(True, False), (False, True)])
    def test_it_is_asked_for_again_if_any_message_said_that_there_is_more(
        self, ring: KeyRing, mores: tuple[bool, bool]
    ) -> None:
        ring.hold(KEYS[0], messages=2)
        answers = [ring.settled(KEYS[0], 0, more=more) for more in mores]
        assert (answers, list(ring.take(1))) == ([False, True], [KEYS[0]])

    def test_it_is_not_asked_for_again_without_reason(self, ring: KeyRing) -> None:
        ring.hold(KEYS[0], messages=1)
        assert (ring.settled(KEYS[0], 0, more=False), list(ring.take(1))) == (False, [])


class Ring(RuleBasedStateMachine):
    """Does with a ring what a claimer does, beside a model of who has what."""

    @initialize()
    def begin(self) -> None:
        self.ring = KeyRing()
        self.waiting: set[Key] = set()
        self.in_flight: dict[Key, int] = {}
        self.more: set[Key] = set()

    @rule(key=st.sampled_from(KEYS), priority=st.integers(-2, 2))
    def find(self, key: Key, priority: int) -> None:
        self.ring.found(key, priority)
        if key in self.in_flight:
            self.more.add(key)
        else:
            self.waiting.add(key)

    @rule(count=st.integers(1, 4), lengths=st.lists(st.integers(0, 3), min_size=4, max_size=4))
    def claim(self, count: int, lengths: list[int]) -> None:
        taken = list(self.ring.take(count))
        assert len(taken) == len(set(taken)) == min(count, len(self.waiting))
        for key, length in zip(taken, lengths, strict=False):
            assert key not in self.in_flight, "a key was taken twice while in flight"
            assert key in self.waiting
            self.waiting.remove(key)
            if length:
                self.ring.hold(key, length)
                self.in_flight[key] = length

    @rule(key=st.sampled_from(KEYS), priority=st.integers(-2, 2), more=st.booleans())
    def settle(self, key: Key, priority: int, more: bool) -> None:
        if key not in self.in_flight:
            return
        again = self.ring.settled(key, priority, more=more)
        if more:
            self.more.add(key)
        self.in_flight[key] -= 1
        if not self.in_flight[key]:
            del self.in_flight[key]
            assert again == (key in self.more), "a key was forgotten"
            if again:
                self.more.remove(key)
                self.waiting.add(key)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert len(self.ring) == len(self.waiting)
        assert all(self.ring.is_held(key) == (key in self.in_flight) for key in KEYS)

    def teardown(self) -> None:
        # Hypothesis also tears down a machine that was never begun.
        if hasattr(self, "ring"):
            assert set(self.ring.take(1000)) == self.waiting


Ring.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRing = Ring.TestCase
