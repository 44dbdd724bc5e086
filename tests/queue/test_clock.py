"""Leases end while the machine sleeps."""

from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue import clock
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Gate, Rig


def test_never_goes_back() -> None:
    times = [clock.now() for _ in range(1000)]
    assert times == sorted(times)


async def test_a_message_that_waited_through_a_suspend_is_not_begun(
    rig: Rig, intercept: Intercept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one whose lease ended while the server was out of reach."""
    gate, now = Gate(), clock.now
    await rig.filled(gate, lease_ttl_seconds=600.0)

    @intercept
    async def unreachable(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "renew":
            raise ConnectionResetError
        return await send()

    monkeypatch.setattr(clock, "now", lambda: now() + 3600.0)
    gate.open.set()
    await rig.witness.wait(events.LeaseWasLost, count=7, phase="waiting")
    assert len(rig.witness.of(events.Started)) == 51
