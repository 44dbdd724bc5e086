"""An exception that is no Exception costs the message that raised it, and nobody else."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import pytest
from sqlalchemy import URL

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, ConstantRetry, Done, NoRetry
from tests.queue.rig import Rig
from tests.waiting import eventually


class Panic(BaseException):
    """What a Rust extension raises."""


PANICS = [Panic("at src/lib.rs:1"), pytest.fail.Exception("no"), SystemExit(1)]


@pytest.fixture(params=PANICS, ids=lambda panic: type(panic).__name__)
def panic(request: pytest.FixtureRequest) -> BaseException:
    error: BaseException = request.param
    return error


async def test_it_is_a_failed_attempt_with_its_error(rig: Rig, panic: BaseException) -> None:
    async def handle(claim: Claim) -> Done:
        if claim.payload == b"poison":
            raise panic
        return DONE

    await rig.work(handle, retry_strategy=NoRetry())
    await rig.put("poison", "a", "b")
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled, count=2)
    (letter,) = await rig.dead()
    assert (died.reason, died.error) == ("retry_terminal", panic)
    assert letter["error_type"].endswith(type(panic).__name__)


async def test_it_fails_its_batch(rig: Rig, panic: BaseException) -> None:
    async def handle(claims: Sequence[Claim]) -> list[Done]:
        if any(claim.payload == b"poison" for claim in claims):
            raise panic
        return [DONE] * len(claims)

    await rig.work(handle, batch=True, batch_size=2, retry_strategy=ConstantRetry(delay_seconds=3600.0))
    await rig.put("poison")
    await rig.witness.wait(events.Retried, error=panic)
    await rig.put("a", "b")
    await rig.witness.wait(events.Handled, count=2)


async def test_one_of_a_hook_is_told_and_changes_nothing(rig: Rig) -> None:
    def hook(claim: Claim) -> NoReturn:
        raise Panic

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"poison":
            raise ValueError
        return DONE

    await rig.work(handle, retry_strategy=NoRetry(), on_terminal_failure=hook)
    await rig.put("poison", "a")
    await rig.witness.wait(events.HookFailed)
    await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled)


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
    async def handle(claim: Claim) -> Done:
        return DONE

    worker = await rig.work(handle)
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


PROGRAM = """
import asyncio
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from faststream_outbox.queue import DONE, Worker
from faststream_outbox.schema import make_outbox_table

async def main():
    engine = create_async_engine({url!r})

    async def handle(claim):
        raise KeyboardInterrupt

    await Worker(engine, make_outbox_table(MetaData()), "orders", handle).start()
    await asyncio.sleep(60)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


async def test_an_interrupt_from_the_keyboard_ends_the_program(rig: Rig, database_url: URL) -> None:
    """Whoever presses Ctrl-C while a handler computes does not mean the message."""
    await rig.put("a")
    program = PROGRAM.format(url=database_url.render_as_string(hide_password=False))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    row = await rig.row()
    assert (output, row["attempts_count"]) == (b"interrupted\n", 0)
