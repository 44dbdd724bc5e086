"""The line of claimed messages: in order, runs whole, and the count right."""

import asyncio

import pytest

from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.executor import Ready


def some(count: int) -> list[Claim]:
    return [Claim.__new__(Claim) for _ in range(count)]


@pytest.fixture
def ready() -> Ready:
    return Ready()


def test_a_batch_takes_messages_and_whole_runs_as_long_as_they_fit(ready: Ready) -> None:
    single, run, long_run = some(2), some(3), some(2)
    ready.put(single)
    ready.put_run(run)
    ready.put_run(long_run)
    assert ready.take_more(6) == [*single, *run]
    assert ready.count == 2
    assert ready.take_more(2) == long_run


def test_a_run_that_does_not_fit_stays_whole_and_keeps_its_place(ready: Ready) -> None:
    run, behind = some(3), some(1)
    ready.put_run(run)
    ready.put(behind)
    assert ready.take_more(2) == []
    assert (ready.count, ready.clear()) == (4, [*run, *behind])


def test_nothing_can_be_had_at_once_from_an_empty_line(ready: Ready) -> None:
    assert ready.take_more(5) == []


async def test_who_waits_is_called_when_a_message_comes(ready: Ready) -> None:
    waiting = asyncio.create_task(ready.take())
    await asyncio.sleep(0)
    (message,) = some(1)
    ready.put([message])
    assert await waiting == [message]
    assert ready.count == 0
