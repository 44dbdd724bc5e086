"""A message of a topic ends every process that handles it: it is parked, and its neighbours go on."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.crash_child import CrashPart
from tests.faults.log_scene import LOG, TOPIC, LogScene, log_tables
from tests.faults.processes import WorkerProcess
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

MESSAGES = 61
KILLER = 30
LIMIT = 2
MOST_RESTARTS = LIMIT + 3


class CrashProcess(WorkerProcess):
    """A child that runs `tests.faults.crash_child`."""

    program = "tests.faults.crash_child"

    async def ends(self) -> None:
        """Wait until it is gone."""
        await self._process.wait()


async def publish(scene: LogScene) -> None:
    """Every message under a key of its own."""
    engine = create_async_engine(scene.world.replace("postgresql://", "postgresql+asyncpg://"))
    outbox = Outbox(engine, tables=log_tables(MetaData()), listen=False)
    async with engine.begin() as connection:
        messages = [OutboxMessage(f"{TOPIC}/{number}", number) for number in range(1, MESSAGES + 1)]
        await outbox.publish(connection, *messages)
    await outbox.cleanup()
    await engine.dispose()


def runs(scene: LogScene) -> Counter[int]:
    return Counter(version for _, version in scene.handled())


@pytest.mark.parametrize(
    ("way", "fails_first"),
    [
        ("plain", True),
        ("transactional", False),
        ("topic_batch", True),
        pytest.param("plain", False, marks=pytest.mark.soak),
        pytest.param("topic_batch", False, marks=pytest.mark.soak),
    ],
)
async def test_message_that_ends_its_process_is_parked_and_the_rest_goes_on(
    log_scene: LogScene, way: str, fails_first: bool
) -> None:
    await publish(log_scene)
    part = CrashPart(log_scene.world, way, KILLER, LIMIT, fails_first)
    is_finished = asyncio.Event()
    restarts = 0
    child = await CrashProcess.start(part)

    async def keep_alive() -> None:
        nonlocal restarts, child
        while not is_finished.is_set():
            await child.ends()
            if restarts == MOST_RESTARTS or is_finished.is_set():
                return
            restarts += 1
            child = await CrashProcess.start(part)

    def all_is_dealt_with() -> bool:
        parked = log_scene.ask(f"select position from {LOG}_deferred where state = 'parked'")
        return len(runs(log_scene)) == MESSAGES and len(parked) == 1

    keeping = asyncio.create_task(keep_alive())
    try:
        await eventually(lambda: all_is_dealt_with() or keeping.done(), 60)
    finally:
        is_finished.set()
        await child.kill()
        await keeping
    seen = runs(log_scene)
    print(f"{way}: {restarts} restarts, {sum(seen.values())} runs of {len(seen)} messages")
    assert len(seen) == MESSAGES
    deferrals = log_scene.ask(f"select position, state, error_type, error_message from {LOG}_deferred")
    assert [row[:3] for row in deferrals] == [(KILLER, "parked", "faststream_outbox.errors.CrashLoop")]
    assert deferrals[0][3].startswith("crash_loop: ")
    # What was in flight at the first death runs again once, and so does a batch that fails as a whole; later ones cost
    # nobody but the guilty one.
    most = 2 + (way == "topic_batch" and fails_first)
    assert max(count for number, count in seen.items() if number != KILLER) <= most
    assert seen[KILLER] == LIMIT + 1 + fails_first
