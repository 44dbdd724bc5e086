"""Relays are killed and brokers go away: nothing is lost, and the order per key holds once duplicates are removed.

`pytest -m soak -s tests/relay/promises/test_faults.py` does it with 20,000 messages, and says what came of them.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import URL

from tests.broker.topics.stage import Stage
from tests.faults.processes import RelayProcess, Troupe
from tests.relay.account import account
from tests.relay.child import Route
from tests.relay.far_ends import FAR_ENDS, FarEnd
from tests.relay.traffic import left, publish_both
from tests.waiting import progresses

pytestmark = [pytest.mark.faults, pytest.mark.slow]

STANDSTILL = 120.0
"""Longer than any client waits for an answer: aiokafka gives up after 40 seconds, botocore after 60."""
SIZES = {"sqs": (400, 20)}
"""Messages and keys, where they are not 1,000 and 50: moto takes its time."""
AWAY = {"kafka": 45.0, "confluent": 45.0}
"""Seconds that a broker is gone in the long tests, where they are not 8: longer than aiokafka waits for an answer."""
KINDS = sorted(FAR_ENDS)
OFTEN = ["kafka", "nats"]
"""Those that every run of the tests breaks; the soaks break all of them."""


@pytest.fixture
async def far_end(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FarEnd]:
    far_end = FAR_ENDS[request.param](tmp_path)
    try:
        await far_end.start()
        yield far_end
    finally:
        await far_end.close()


async def chaos(
    stage: Stage,
    relays: Troupe[RelayProcess],
    far_end: FarEnd,
    route: Route,
    *,
    count: int,
    keys: int,
    kills: int,
    away: float,
) -> None:
    """Publish in portions; in the midst of each kill one of two relays, and let the broker be gone every other time."""
    portion = count // 2 // (kills + 1)
    outages = 0
    killed: set[str] = set()
    running = await relays.start(route, route)
    await publish_both(stage, 0, portion, keys)
    for kill in range(1, kills + 1):
        await progresses(lambda: left(stage), portion, STANDSTILL)
        victim = running.pop(0)
        await victim.kill()
        killed.add(str(victim.pid))
        more = portion if kill < kills else count // 2 - kill * portion
        await publish_both(stage, kill * portion, more, keys)
        if kill % 2 == 1:
            await far_end.outage(away)
            outages += 1
        running += await relays.start(route)
    await progresses(lambda: left(stage), 0, STANDSTILL)
    assert await stage.sql(f"select 1 from {stage.dlq_table.name}") == []
    expected = {(source, number) for source in ("queue", "topic") for number in range(count // 2)}
    found = account(expected, await far_end.arrived(), killed)
    what = f"{count} messages of {keys} keys, {kills} relays killed, {outages} outages of {away:g} s"
    print(f"{route.kind}: {what}: {found}")
    assert (found.lost, found.unknown, found.broken) == (set(), set(), {})


@pytest.mark.parametrize(("far_end", "kind"), [(kind, kind) for kind in OFTEN], indirect=["far_end"], ids=OFTEN)
async def test_nothing_is_lost_and_order_holds(
    stage: Stage, relays: Troupe[RelayProcess], far_end: FarEnd, kind: str, database_url: URL
) -> None:
    route = Route(database_url.render_as_string(hide_password=False), kind, far_end.url, far_end.place)
    count, keys = SIZES.get(kind, (1000, 50))
    await chaos(stage, relays, far_end, route, count=count, keys=keys, kills=2, away=0.5)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("far_end", "kind"), [(kind, kind) for kind in KINDS], indirect=["far_end"], ids=KINDS)
async def test_nothing_of_much_is_lost_and_order_holds(
    stage: Stage, relays: Troupe[RelayProcess], far_end: FarEnd, kind: str, database_url: URL
) -> None:
    route = Route(database_url.render_as_string(hide_password=False), kind, far_end.url, far_end.place)
    await chaos(stage, relays, far_end, route, count=20_000, keys=200, kills=5, away=AWAY.get(kind, 8.0))
