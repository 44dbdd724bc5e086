"""A bounded run of the machine: every role is killed once, some are frozen, lines are cut, and all promises hold."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from tests.faults.machine.cast import Cast
from tests.faults.machine.part import MEMBER, PRODUCER, ROLES, TRANSACTIONAL_WORKER, WORKER
from tests.faults.machine.play import Plan, play
from tests.faults.machine.strikes.lines import CommitAnswersLost, Cut
from tests.faults.machine.strikes.processes import Frozen, Killed
from tests.faults.machine.strikes.servers import NatsRestarted, PostgresRestarted
from tests.faults.machine.strikes.strike import Strike
from tests.faults.machine.world import World

pytestmark = pytest.mark.faults

SEED = 4
STRIKES: tuple[Strike, ...] = (
    *(Killed(roles=[role]) for role in ROLES),
    Frozen(roles=[WORKER]),
    Frozen(roles=[MEMBER]),
    Cut(),
    CommitAnswersLost(),
    NatsRestarted(),
    PostgresRestarted("immediate"),
)


async def _strike_each(world: World, cast: Cast) -> Mapping[str, str]:
    chance = Random(SEED)
    for strike in STRIKES:
        await strike.strike(world, cast, chance)
    return {}


@pytest.mark.timeout(600)
async def test_all_promises_hold_while_everything_is_broken_once(tmp_path: Path) -> None:
    numbers = dict.fromkeys(ROLES, 1) | {WORKER: 2, TRANSACTIONAL_WORKER: 2, MEMBER: 2}
    plan = Plan(
        SEED,
        0.0,
        {role: numbers[role] for role in (*reversed(ROLES[1:]), PRODUCER)},
        pooler=False,
        standby=False,
        pace=8.0,
    )
    report = await play(plan, tmp_path, _strike_each)
    print(report.markdown())
    assert Counter(fault.kind for fault in report.story.faults) == Counter(strike.kind for strike in STRIKES)
    assert {event.role for event in report.story.events if event.kind == "finished"} >= {*ROLES} - {PRODUCER}
    assert [str(wrong) for wrong in report.wrongs] == []
