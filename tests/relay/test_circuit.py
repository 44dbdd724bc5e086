"""The circuit: reports once that the broker is down and once that it is up, and one try at a time in between."""

import asyncio
from typing import Any

import pytest

from faststream_outbox._internal.relay import circuit as circuits
from faststream_outbox._internal.relay.circuit import Circuit

ERROR = ConnectionError("nobody there")


class Scene:
    def __init__(self) -> None:
        self.said: list[Any] = []
        self.circuit = Circuit(self.said.append, lambda seconds: self.said.append("up"))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(circuits, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(circuits, "LONGEST_PAUSE", 0.002)
    return Scene()


async def test_an_outage_is_reported_once(scene: Scene) -> None:
    assert await scene.circuit.enter()
    for _ in range(3):
        scene.circuit.failed(ERROR)
        assert await scene.circuit.enter()
    scene.circuit.answered()
    scene.circuit.answered()
    assert scene.said == [ERROR, "up"]
    assert scene.circuit.is_closed


async def test_one_tries_and_the_others_wait_for_what_comes_of_it(scene: Scene) -> None:
    scene.circuit.failed(ERROR)
    assert await scene.circuit.enter()
    others = [asyncio.create_task(scene.circuit.enter()) for _ in range(5)]
    await asyncio.sleep(0.02)
    assert not any(other.done() for other in others)
    scene.circuit.answered()
    assert await asyncio.gather(*others) == [True] * 5


async def test_another_tries_where_one_has_gone(scene: Scene) -> None:
    scene.circuit.failed(ERROR)
    assert await scene.circuit.enter()
    other = asyncio.create_task(scene.circuit.enter())
    await asyncio.sleep(0.01)
    scene.circuit.left()
    assert await other


async def test_a_failure_of_what_was_sent_before_changes_nothing(scene: Scene) -> None:
    scene.circuit.failed(ERROR)
    before = scene.circuit.pause
    for _ in range(20):
        scene.circuit.failed(ConnectionError("too"))
    assert scene.circuit.pause <= before
    assert scene.circuit.error is ERROR


async def test_nobody_waits_for_an_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(circuits, "LONGEST_PAUSE", 1000.0)
    scene.circuit.failed(ERROR)
    waiting = asyncio.create_task(scene.circuit.enter())
    await asyncio.sleep(0)
    scene.circuit.end()
    assert await waiting is False


async def test_a_broker_that_is_slow_is_suspected_and_cleared(scene: Scene) -> None:
    assert await scene.circuit.enter()
    scene.circuit.suspect(ERROR)
    other = asyncio.create_task(scene.circuit.enter())
    await asyncio.sleep(0.01)
    assert not other.done()
    scene.circuit.answered()
    assert await other
    assert scene.said == [ERROR, "up"]
