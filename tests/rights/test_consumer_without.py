"""A consumer that lacks a right loses nothing, says so once, asks ever more seldom, and goes on when it may."""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from faststream_outbox._internal.events.event_log import write_event_log
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox
from tests.rights.jobs import fill
from tests.rights.stage import Stage
from tests.waiting import eventually

TRIES = 6

MISSING = {
    "to read": "SELECT ON outbox_log",
    "to sequence": "INSERT ON outbox_log_ticks",
    "to move on": "UPDATE ON outbox_log_offsets",
    "to be a member": "INSERT ON outbox_log_members",
    "to defer": "INSERT ON outbox_log_deferred",
}


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING.keys())
async def test_nothing_is_lost(stage: Stage, missing: str, failed: Counter[str], caplog: Any) -> None:
    handled: list[Any] = []

    async def handle(message: Any) -> None:
        if message.payload == "poison":
            raise RuntimeError("never")
        handled.append(message.payload)

    fill(stage, "a", "poison", "b")
    engine = stage.engine("outbox_consumer")
    retry = ConstantRetry(delay_seconds=0.001, max_attempts=2)
    async with Outbox(engine, tables=stage.log_tables, events=Events(), retry_strategy=retry) as outbox:
        write_event_log(outbox.events, logging.getLogger("consumer"))
        ended = asyncio.Event()
        with stage.without(f"REVOKE {missing} FROM outbox_consumer"):
            running = asyncio.create_task(outbox.run(handle, "billing", stop_event=ended))
            await eventually(lambda: running.done() or sum(failed.values()) >= TRIES)
            assert not running.done(), running.exception()
            said = [line for line in caplog.messages if line.startswith("`")]
        await eventually(lambda: set(handled) == {"a", "b"})
        await eventually(lambda: stage.ask("SELECT state FROM outbox_log_deferred") == [("parked",)])
        ended.set()
        await running
    await engine.dispose()
    assert said == list(dict.fromkeys(said)) != []
    assert all("permission denied" in line and "docs/security.md" in line for line in said)
