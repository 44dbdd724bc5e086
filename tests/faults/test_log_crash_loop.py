"""A message of a topic ends every process that handles it: it is parked, and its neighbours go on."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.log_child import LogPart
from tests.faults.log_scene import LOG, TOPIC, LogScene, log_tables
from tests.faults.processes import LogProcess
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

MESSAGES = 61
KILLER = 30
LIMIT = 2
MOST_RESTARTS = LIMIT + 3


@pytest.mark.parametrize(
    ("way", "fails_first"),
    [
        ("plain", True),
        ("transactional", False),
        ("batch", True),
        pytest.param("plain", False, marks=pytest.mark.soak),
        pytest.param("batch", False, marks=pytest.mark.soak),
    ],
)
async def test_message_that_ends_its_process_is_parked_and_the_rest_goes_on(
    engine: AsyncEngine, log_scene: LogScene, seed: int, way: str, fails_first: bool
) -> None:
    # Every message under a key of its own.
    messages = [OutboxMessage(f"{TOPIC}/{n}", {"name": f"{n}", "version": n}) for n in range(1, MESSAGES + 1)]
    async with Outbox(engine, tables=log_tables(), listen=False) as outbox, engine.begin() as connection:
        await outbox.publish(connection, *messages)
    part = LogPart(
        log_scene.world,
        log_scene.record,
        seed,
        "billing",
        way == "transactional",
        poll_interval=0.2,
        most_attempts=1000,
        killer=KILLER,
        fails_first=fails_first,
        batch=way == "batch",
        options={"lease_ttl_seconds": 1.0, "crash_limit": LIMIT},
    )
    is_finished = asyncio.Event()
    restarts = 0
    child = await LogProcess.start(part)

    async def keep_alive() -> None:
        nonlocal restarts, child
        while not is_finished.is_set():
            await child.ends(patience=None)
            if restarts == MOST_RESTARTS or is_finished.is_set():
                return
            restarts += 1
            child = await LogProcess.start(part)

    def runs() -> Counter[int]:
        return Counter(version for _, version in log_scene.handled())

    def all_is_dealt_with() -> bool:
        parked = log_scene.ask(f"select position from {LOG}_deferred where state = 'parked'")
        return len(runs()) == MESSAGES and len(parked) == 1

    keeping = asyncio.create_task(keep_alive())
    try:
        await eventually(lambda: all_is_dealt_with() or keeping.done(), 60)
    finally:
        is_finished.set()
        await child.kill()
        await keeping
    seen = runs()
    print(f"{way}: {restarts} restarts, {sum(seen.values())} runs of {len(seen)} messages")
    assert len(seen) == MESSAGES
    deferrals = log_scene.ask(f"select position, state, error_type, error_message from {LOG}_deferred")
    assert [row[:3] for row in deferrals] == [(KILLER, "parked", "faststream_outbox.errors.CrashLoop")]
    assert deferrals[0][3].startswith("crash_loop: ")
    # What was in flight at the first death runs again once, and so does a batch that fails as a whole; later ones cost
    # nobody but the guilty one.
    most = 2 + (way == "batch" and fails_first)
    assert max(count for number, count in seen.items() if number != KILLER) <= most
    assert seen[KILLER] == LIMIT + 1 + fails_first
