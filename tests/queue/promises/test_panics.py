"""Whatever a handler or a strategy ends with costs the message that it was for, and nobody else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Done, NoRetry
from tests.queue.rig import Rig, done
from tests.waiting import eventually


class Panic(BaseException):
    """What a Rust extension raises."""


def raising(error: BaseException) -> Callable[[Claim], Awaitable[NoReturn]]:
    async def handle(claim: Claim) -> NoReturn:
        raise error

    return handle


async def cancelled_by_what_it_awaits(claim: Claim) -> Done:
    task = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task
    return DONE


async def cancelled_through_its_own_task(claim: Claim) -> Done:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return DONE


@pytest.mark.parametrize(
    ("poison", "kind"),
    [
        (raising(Panic("at src/lib.rs:1")), Panic),
        (raising(pytest.fail.Exception("no")), pytest.fail.Exception),
        (raising(SystemExit(1)), SystemExit),
        (raising(asyncio.CancelledError()), asyncio.CancelledError),
        (cancelled_by_what_it_awaits, asyncio.CancelledError),
        (cancelled_through_its_own_task, asyncio.CancelledError),
    ],
    ids=["panic", "failed test", "exit", "cancelled by itself", "by what it awaits", "through its own task"],
)
async def test_what_is_no_exception_is_a_failed_attempt_with_its_error(
    rig: Rig, poison: Callable[[Claim], Awaitable[Any]], kind: type[BaseException]
) -> None:
    async def handle(claim: Claim) -> Any:
        return await (poison if claim.payload == b"poison" else done)(claim)

    await rig.work(handle, retry_strategy=NoRetry())
    await rig.put("poison", "a", "b")
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled, count=2)
    (letter,) = await rig.dead()
    assert (died.reason, type(died.error)) == ("retry_terminal", kind)
    assert letter["error_type"].endswith(kind.__name__)


async def test_an_answer_that_is_no_outcome_is_a_failed_attempt(rig: Rig) -> None:
    answers: dict[bytes, Any] = {b"None": None, b"True": True, b"done": "done", b"Done": Done}

    async def handle(claim: Claim) -> Any:
        return answers.get(claim.payload, DONE)

    await rig.work(handle, retry_strategy=NoRetry())
    await rig.put(*(body.decode() for body in answers), "a", "b")
    await rig.witness.wait(events.Handled, count=2)
    await rig.witness.wait(events.Died, count=4)
    assert {letter["payload"] for letter in await rig.dead()} == answers.keys()


async def test_one_of_a_retry_strategy_gives_the_message_up(rig: Rig) -> None:
    class Strategy:
        def get_next_attempt_delay(self, **facts: object) -> NoReturn:
            raise Panic

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"poison":
            raise ValueError
        return DONE

    await rig.work(handle, retry_strategy=Strategy())
    await rig.put("poison", "a")
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled)
    assert isinstance(died.error, Panic)


async def test_a_handler_loop_that_ends_all_the_same_is_started_again_and_told(rig: Rig) -> None:
    worker = await rig.work(done)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    await eventually(lambda: not worker.running)
    (loop,) = [task for task in asyncio.all_tasks() if task.get_name() == "outbox orders 0"]
    healthy = [rig.client.is_healthy]
    loop.cancel()
    await rig.witness.wait(events.LoopCrashed, name="outbox orders 0")
    healthy.append(rig.client.is_healthy)
    await rig.put("b")
    await rig.witness.wait(events.Handled, count=2)
    healthy.append(rig.client.is_healthy)
    assert healthy == [True, False, True]
