"""Claims that fail for a moment set no message apart; those that fail for seconds do."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue import asking
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Rig, done

CLAIMS = ("claim", "claim_keys", "claim_found")


class Stumble:
    """Every claim fails, whatever it would have brought, for so many seconds and so often."""

    def __init__(self, intercept: Intercept) -> None:
        self.seconds = 0.0
        self.times = 1
        self.failed_at: list[float] = []
        self.set_apart_at = 0.0

        @intercept
        async def stumbling(name: str, values: Mapping[str, Any], send: Send) -> Any:
            now = asyncio.get_running_loop().time()
            if name in CLAIMS and not self.is_over(now):
                self.failed_at.append(now)
                raise MemoryError
            if name == "set_apart":
                self.set_apart_at = now
            return await send()

    def is_over(self, now: float) -> bool:
        return len(self.failed_at) >= self.times and now - self.failed_at[0] >= self.seconds


@pytest.fixture
def stumble(intercept: Intercept) -> Stumble:
    return Stumble(intercept)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_stumble_sets_nothing_apart(rig: Rig, stumble: Stumble, key: str | None) -> None:
    stumble.seconds, stumble.times = 0.3, asking.STRIKES + 1
    await rig.ended(events.Handled, done, "a", key=key, fetch_batch_size=1)
    assert rig.witness.of(events.MessageSetApart) == []


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
async def test_what_fails_for_long_is_set_apart_and_no_sooner(
    rig: Rig, stumble: Stumble, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "STRIKE_SECONDS", 1.0)
    stumble.seconds = 3600.0
    await rig.ended(events.MessageSetApart, done, "a", key=key, fetch_batch_size=1)
    assert stumble.set_apart_at - stumble.failed_at[0] >= 1.0
