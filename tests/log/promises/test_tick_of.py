"""The tick of a position is found wherever it is: in its turn, late, or late among late ones."""

import random
from itertools import pairwise

import pytest

from faststream_outbox._internal.log.admin import positions
from faststream_outbox._internal.log.admin.positions import Positions, around
from tests.log.rig import LogRig


def test_looks_around_cover_every_tick_once() -> None:
    for guess, first, last in [(1, 1, 1), (1, 1, 5000), (5000, 1, 5000), (700, 3, 4000), (9, 9, 9)]:
        looks = sorted(around(guess, first, last))
        assert (looks[0][0], looks[-1][1]) == (first, last + 1)
        assert all(one[1] == next_[0] for one, next_ in pairwise(looks))


async def test_every_position_is_found_in_its_tick(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ticks are of late positions only, a whole row of them too, and some are gone."""
    monkeypatch.setattr(positions, "NEAR", 2)
    monkeypatch.setattr(positions, "FURTHER", 1)
    dice = random.Random(7)
    free, ticks, high = [], {}, 0
    for tick in range(1, 121):
        is_late_only = 40 <= tick < 60 or dice.random() < 0.2
        late = dice.sample(free, min(len(free), dice.randint(0, 2))) if free else []
        free = [number for number in free if number not in late]
        if not (is_late_only and late):
            for _ in range(dice.randint(1, 3)):
                high += 1
                (free if dice.random() < 0.4 else late).append(high)
        if late:
            ticks[tick] = sorted(late)
    rows = [f"({tick}, array{numbers}, array{numbers}, {len(numbers)})" for tick, numbers in ticks.items()]
    await rig.ask(f"insert into {{ticks}} (tick, lows, highs, count) values {', '.join(rows)}")
    gone = set(dice.sample(sorted(ticks), 20)) - {max(ticks)}
    await rig.ask("delete from {ticks} where tick = any (:gone)", gone=sorted(gone))
    truth = {number: tick for tick, numbers in ticks.items() if tick not in gone for number in numbers}
    async with rig.engine.connect() as connection:
        looking = await Positions.caller_connection(rig.outbox.tables, connection)
        found = {number: await looking.tick_of(number) for number in range(1, high + 5)}
    assert {number: tick for number, tick in found.items() if tick is not None} == truth


async def test_position_that_is_not_sequenced_has_no_tick(rig: LogRig) -> None:
    async with rig.engine.connect() as connection:
        looking = await Positions.caller_connection(rig.outbox.tables, connection)
        assert await looking.tick_of(1) is None
        await rig.put("k", 1)
        assert await looking.tick_of(1) is None
        await rig.sequence()
        assert (await looking.tick_of(1), await looking.tick_of(2)) == (1, None)
