"""`open_then`: what needs another broker begins when that runs, and says once that it is late."""

import asyncio
import math

import pytest

from faststream_outbox._internal.relay import gate
from faststream_outbox._internal.relay.gate import open_then


class Way:
    """To another broker; whoever waits for ever is let in, or sent away, when the test says so."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self.happened: list[str] = []
        self.decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> bool:
        self.happened.append(f"waits for {seconds:g} s")
        return await self.decided if math.isinf(seconds) else self.is_open

    def late(self) -> None:
        self.happened.append("late")

    async def begin(self) -> None:
        self.happened.append("begins")

    async def taken(self) -> list[str]:
        await open_then(self.wait, self.late, self.begin)
        return self.happened


async def test_what_is_open_at_once_begins_at_once() -> None:
    assert await Way(is_open=True).taken() == ["waits for 5 s", "begins"]


async def test_what_opens_later_begins_then_and_was_late_once() -> None:
    way = Way()
    way.decided.set_result(True)
    assert await way.taken() == ["waits for 5 s", "late", "waits for inf s", "begins"]


async def test_nothing_begins_before_it_is_open() -> None:
    way = Way()
    taking = asyncio.ensure_future(way.taken())
    done, _ = await asyncio.wait([taking], timeout=0.05)
    assert not done
    assert way.happened == ["waits for 5 s", "late", "waits for inf s"]
    taking.cancel()


async def test_nothing_begins_where_the_waiting_is_over() -> None:
    way = Way()
    way.decided.set_result(False)
    assert await way.taken() == ["waits for 5 s", "late", "waits for inf s"]


async def test_patience_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "PATIENCE_SECONDS", 0.05)
    assert await Way(is_open=True).taken() == ["waits for 0.05 s", "begins"]
