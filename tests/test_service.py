"""A service starts once, stops for good, and outlives its own crashes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.service import LONGEST_PAUSE, Service, called, pause_after, retrying, until
from tests.cases import each
from tests.waiting import eventually


class Loop:
    """A loop that counts its lives and fails as often as it is told."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.begun = 0
        self.cancelled = 0
        self.reports: list[tuple[str, Exception]] = []

    async def run(self) -> None:
        self.begun += 1
        if self.failures:
            raise self.failures.pop(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # An ending that takes a while, for `stop` to wait for.
            await asyncio.sleep(0.01)
            self.cancelled += 1
            raise

    def service(self) -> Service:
        return Service("tester", self.run, lambda name, error: self.reports.append((name, error)))


@asynccontextmanager
async def begun(*failures: BaseException, times: int = 1) -> AsyncIterator[tuple[Loop, Service]]:
    """A loop that has begun so often, and the service that runs it, which is stopped at the end."""
    loop = Loop(*failures)
    service = loop.service()
    assert not service.is_running
    service.start()
    await eventually(lambda: loop.begun >= times)
    yield loop, service
    await service.stop()


def crashes(count: int) -> list[BaseException]:
    return [ValueError(str(number)) for number in range(count)]


async def test_it_runs_once_from_start_to_stop_which_awaits_the_end() -> None:
    async with begun() as (loop, service):
        assert service.is_running
        service.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert loop.begun == 1
        for _ in range(2):
            await service.stop()
            assert (loop.cancelled, service.is_running) == (1, False)


async def test_stop_before_start_does_nothing() -> None:
    loop = Loop()
    service = loop.service()
    await service.stop()
    service.start()
    await eventually(lambda: loop.begun == 1)
    await service.stop()


async def test_it_can_be_started_again() -> None:
    loop = Loop()
    service = loop.service()
    for _ in range(2):
        service.start()
        await asyncio.sleep(0)
        await service.stop()
    assert loop.begun == 2


@pytest.mark.parametrize("error", [ValueError("crash"), asyncio.CancelledError("nobody asked for this")], ids=repr)
async def test_a_loop_that_crashes_or_cancels_itself_runs_again(error: BaseException) -> None:
    async with begun(error, times=2) as (loop, service):
        assert (loop.reports, service.is_running) == ([("tester", error)], True)


async def test_pauses_between_crashes_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    loop = Loop(*crashes(4))
    monkeypatch.setattr("faststream_outbox._internal.service.asyncio.sleep", counted)
    service = loop.service()
    service.start()
    while loop.begun < 5:
        await sleep(0)
    monkeypatch.undo()
    assert pauses == [pause_after(failures) for failures in (1, 2, 3, 4)]
    await service.stop()


async def test_stop_ends_the_pause_after_a_crash() -> None:
    async with begun(*crashes(1000), times=2):
        pass
    assert "tester" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_loop_that_ends_is_not_started_again() -> None:
    ended: list[int] = []

    async def run() -> None:
        ended.append(1)

    service = Service("tester", run, lambda name, error: None)
    service.start()
    await eventually(lambda: not service.is_running)
    assert ended == [1]


async def test_a_service_that_stops_itself_is_refused() -> None:
    refused: list[str] = []

    async def run() -> None:
        try:
            await service.stop()
        except RuntimeError as error:
            refused.append(str(error))

    service = Service("tester", run, lambda name, error: None)
    service.start()
    await eventually(lambda: refused)
    assert refused == ["tester cannot be stopped from its own task."]


class TestPause:
    def test_doubles_with_each_failure(self) -> None:
        assert [pause_after(failures) for failures in (1, 2, 3)] == [0.05, 0.1, 0.2]

    @given(failures=st.integers(1, 10_000), chance=st.floats(0, 1))
    def test_grows_and_ends_within_bounds_of_the_caller(self, failures: int, chance: float) -> None:
        pause = pause_after(failures, chance, first=0.1, longest=15.0)
        assert 0.05 <= pause <= 15.0
        assert pause <= pause_after(failures + 1, first=0.1, longest=15.0)

    def test_half_of_it_is_by_chance(self) -> None:
        assert [pause_after(3, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 0.15, 0.2])

    @each("failures", [8, 100, 10**9])
    def test_ends_at_the_longest(self, failures: int) -> None:
        assert pause_after(failures) == LONGEST_PAUSE


class Work:
    """Fails as often as it is told, then returns how often it was tried."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("gone")
        self.tries = 0
        self.reports: list[tuple[Exception, int]] = []

    async def __call__(self) -> int:
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error
        return self.tries

    def failed(self, error: Exception, failures: int) -> None:
        self.reports.append((error, failures))


async def test_retrying_tries_until_it_works_and_tells_each_failure() -> None:
    work = Work(failures=3)
    assert await retrying(work, work.failed, longest_pause=0) == 4
    assert work.reports == [(work.error, 1), (work.error, 2), (work.error, 3)]


async def test_retrying_pauses_longer_after_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("faststream_outbox._internal.service.random", lambda: 1.0)
    work = Work(failures=4)
    await retrying(work, work.failed, longest_pause=0.3)
    assert pauses == [0.05, 0.1, 0.2, 0.3]


async def test_what_is_raised_on_a_failure_ends_the_trying() -> None:
    work = Work(failures=2)

    def give_up(error: Exception, failures: int) -> None:
        raise error

    with pytest.raises(ConnectionError):
        await retrying(work, give_up)
    assert work.tries == 1


async def test_retrying_is_ended_by_a_cancellation() -> None:
    work = Work(failures=1, error=asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await retrying(work, work.failed)
    assert work.reports == []


def now() -> float:
    return asyncio.get_running_loop().time()


class TestCalled:
    @pytest.mark.parametrize("at", [-inf, 0.0, inf])
    async def test_event_that_was_set_before_is_not_waited_for(self, at: float) -> None:
        event = asyncio.Event()
        event.set()
        waiting = called(event, at)
        with pytest.raises(StopIteration) as ended:
            waiting.send(None)
        assert (ended.value.value, event.is_set()) == (True, True)

    @pytest.mark.parametrize("seconds", [3600.0, inf])
    async def test_event_that_is_set_later(self, seconds: float) -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(called(event, now() + seconds))
        await asyncio.sleep(0)
        assert not waiting.done()
        event.set()
        assert await waiting is True

    async def test_event_that_is_never_set(self) -> None:
        before: list[int] = []
        asyncio.get_running_loop().call_later(0.01, before.append, 1)
        assert await called(asyncio.Event(), now() + 0.05) is False
        assert before == [1]

    @pytest.mark.parametrize("seconds", [1.0, 3600.0, inf])
    async def test_time_that_has_passed_is_not_waited_for_and_lets_others_have_a_turn(self, seconds: float) -> None:
        turns: list[int] = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        async with asyncio.timeout(30):
            assert await called(asyncio.Event(), now() - seconds) is False
        assert turns == [1]

    async def test_event_that_is_set_in_the_moment_the_time_comes(self) -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_soon(event.set)
        assert await called(event, now() - 1) is True

    @pytest.mark.parametrize("seconds", [3600.0, inf])
    async def test_is_ended_by_a_cancellation(self, seconds: float) -> None:
        waiting = asyncio.ensure_future(called(asyncio.Event(), now() + seconds))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


class TestUntil:
    @pytest.fixture
    def pauses(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """How long was slept, in a moment each."""
        slept: list[float] = []
        sleep = asyncio.sleep

        async def counted(seconds: float) -> None:
            slept.append(seconds)
            await sleep(0)

        monkeypatch.setattr("faststream_outbox._internal.service.asyncio.sleep", counted)
        return slept

    async def test_what_is_so_at_once_is_not_waited_for(self, pauses: list[float]) -> None:
        assert await until(lambda: True, -1.0, lambda: True, 0.02) is True
        assert pauses == []

    @pytest.mark.parametrize(("over", "answer", "pauses_made"), [(99, True, 3), (2, False, 2)], ids=["so", "over"])
    async def test_what_becomes_so_is_waited_for_until_it_is_over(
        self, over: int, answer: bool, pauses_made: int, pauses: list[float]
    ) -> None:
        assert await until(lambda: len(pauses) == 3, 3600.0, lambda: len(pauses) == over, 0.02) is answer
        assert pauses == [0.02] * pauses_made

    async def test_what_never_becomes_so_is_waited_for_so_long(self) -> None:
        before: list[int] = []
        asyncio.get_running_loop().call_later(0.01, before.append, 1)
        assert await until(lambda: False, 0.05, lambda: False, 0.001) is False
        assert before == [1]

    async def test_is_ended_by_a_cancellation(self) -> None:
        waiting: asyncio.Future[Any] = asyncio.ensure_future(until(lambda: False, 3600.0, lambda: False, 0.001))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
