"""A pulse tells a loop that hangs from one that has nothing to do."""

import pytest

from faststream_outbox._internal import service
from faststream_outbox._internal.service import Pulse


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(service, "monotonic", clock)
    return clock


def test_a_loop_that_never_began_is_not_stuck(clock: Clock) -> None:
    assert Pulse(10.0).stuck_for(clock.now + 1e6) == 0


def test_a_step_that_takes_too_long_is_stuck(clock: Clock) -> None:
    pulse = Pulse(10.0)
    pulse.beat()
    assert pulse.stuck_for(clock.now + 10.0) == 0
    assert pulse.stuck_for(clock.now + 11.0) == 11.0
    clock.now += 11.0
    pulse.beat()
    assert pulse.stuck_for(clock.now) == 0


def test_who_rests_until_called_is_never_stuck(clock: Clock) -> None:
    pulse = Pulse(10.0)
    pulse.rest()
    assert pulse.stuck_for(clock.now + 1e9) == 0


def test_who_rests_for_a_time_and_sleeps_through_it_is_stuck(clock: Clock) -> None:
    pulse = Pulse(10.0)
    pulse.rest(60.0)
    assert pulse.stuck_for(clock.now + 70.0) == 0
    assert pulse.stuck_for(clock.now + 71.0) == 71.0
