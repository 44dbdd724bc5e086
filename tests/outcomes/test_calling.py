"""Whatever a handler ends with is an answer, but for what ends the program."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faststream_outbox._internal.outcomes.calling import ended


class Panic(BaseException):
    """What a Rust extension raises."""


def failed(error: BaseException) -> Any:
    return "failed", error


async def cancelled(error: asyncio.CancelledError) -> Any:
    return "cancelled", error


async def passed_on(error: asyncio.CancelledError) -> Any:
    raise error


def raising(error: BaseException) -> Callable[[], Awaitable[Any]]:
    async def call() -> Any:
        raise error

    return call


async def hanging() -> None:
    await asyncio.Event().wait()


async def hanging_for_a_moment() -> None:
    async with asyncio.timeout(0):
        await asyncio.Event().wait()


async def test_an_answer_is_what_it_is() -> None:
    async def call(*given: Any) -> Any:
        return given

    answer, _ = await ended(call, 1, 2, failed=failed, cancelled=cancelled)
    assert answer == (1, 2)


@pytest.mark.parametrize("error", [ValueError("no"), Panic(), SystemExit(1), TimeoutError()], ids=repr)
async def test_what_it_raises_is_its_failure(error: BaseException) -> None:
    answer, _ = await ended(raising(error), failed=failed, cancelled=cancelled)
    assert answer == ("failed", error)


async def test_a_timeout_of_its_own_is_its_failure() -> None:
    (kind, error), _ = await ended(hanging_for_a_moment, failed=failed, cancelled=cancelled)
    assert (kind, type(error)) == ("failed", TimeoutError)


async def test_a_cancellation_of_its_own_is_asked_about() -> None:
    error = asyncio.CancelledError()
    answer, _ = await ended(raising(error), failed=failed, cancelled=cancelled)
    assert answer == ("cancelled", error)


async def cancel(answers: Callable[[asyncio.CancelledError], Awaitable[Any]]) -> asyncio.Task[Any]:
    """The task of a handler that was cancelled from outside while it hung."""
    task = asyncio.ensure_future(ended(hanging, failed=failed, cancelled=answers))
    await asyncio.sleep(0)
    task.cancel("from outside")
    await asyncio.wait([task])
    return task


async def test_a_cancellation_from_outside_is_asked_about() -> None:
    (kind, error), _ = (await cancel(cancelled)).result()
    assert (kind, error.args) == ("cancelled", ("from outside",))


async def test_a_cancellation_that_is_passed_on_ends_the_task() -> None:
    assert (await cancel(passed_on)).cancelled()


def test_what_ends_the_program_passes() -> None:
    coroutine = ended(raising(KeyboardInterrupt()), failed=failed, cancelled=cancelled)
    with pytest.raises(KeyboardInterrupt):
        coroutine.send(None)


async def test_what_ends_a_generator_passes() -> None:
    with pytest.raises(GeneratorExit):
        await ended(raising(GeneratorExit()), failed=failed, cancelled=cancelled)


async def test_it_is_said_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 12.5])
    monkeypatch.setattr("faststream_outbox._internal.outcomes.calling.perf_counter", lambda: next(times))
    assert await ended(raising(ValueError()), failed=lambda _: "failed", cancelled=cancelled) == ("failed", 2.5)
