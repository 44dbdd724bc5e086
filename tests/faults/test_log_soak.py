"""Twenty-four writers and three sequencers in processes of their own, under a foreign transaction that stays open.

Afterwards every committed position is in exactly one tick, nothing else is, no gap is left, and what a writer
committed earlier comes earlier.
"""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL

from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_child import LogPart
from tests.faults.log_scene import LOG, LogScene, idle_writer
from tests.faults.processes import LogProcess, LogTroupe, troupe
from tests.waiting import eventually

pytestmark = pytest.mark.faults

WRITERS = 24
SEQUENCERS = 3
MANNER = Manner(names=1000, rollbacks=0.1, most=3, held=0.02, shortest=0.005, longest=0.5, pause=0.0)

_TICKED = (
    f"select t.tick, p.position from {LOG}_ticks t, unnest(t.lows, t.highs) r (lo, hi), "
    "generate_series(r.lo, r.hi) p (position)"
)


@pytest.fixture
async def sequencers(log_scene: LogScene, seed: int) -> AsyncIterator[LogTroupe]:
    async with troupe(LogProcess) as children:
        await children.start(*[LogPart(log_scene.world, log_scene.record, seed + n) for n in range(SEQUENCERS)])
        yield children


async def test_every_position_is_in_exactly_one_tick_and_no_gap_is_left(
    database_url: URL, log_scene: LogScene, log_business: LogBusiness, sequencers: LogTroupe
) -> None:
    with idle_writer(database_url):
        await log_business.publish_with(WRITERS, MANNER, 3.0)
        held = log_scene.ask(f"select count(*) from {LOG}_gaps")[0][0]
    await log_business.publish_with(WRITERS, MANNER, 2.0)
    # Other tests' transactions in the same cluster put off the forgetting of gaps, by as long as they take.
    await eventually(lambda: not log_scene.ask(f"select * from {LOG}_gaps"), 60.0, "every gap is filled or forgotten")
    committed = {position for positions in log_business.positions for position in positions}
    ticked = log_scene.ask(_TICKED)
    place = {position: (tick, position) for tick, position in ticked}
    rows, numbers = log_scene.ask(f"select (select count(*) from {LOG}), last_value from {LOG}_head_drawn_seq")[0]
    ticks = log_scene.ask(f"select count(*), min(tick), max(tick) from {LOG}_ticks")[0]
    print(f"{rows} rows of {numbers} numbers in {ticks[0]} ticks; {held} gaps when the foreign transaction ended")
    assert len(sequencers.alive) == SEQUENCERS
    assert numbers > rows, "nothing was rolled back"
    assert committed == {row[0] for row in log_scene.ask(f"select position from {LOG}")}
    assert len(ticked) == len(place), "a position is in two ticks"
    assert set(place) == committed
    assert ticks == (ticks[0], 1, ticks[0])
    for positions in log_business.positions:
        assert [place[position] for position in positions] == sorted(place[position] for position in positions)
