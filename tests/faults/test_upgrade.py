"""From the tables of an earlier version to ours and back, while publishers and workers of both run and are killed.

The processes of the earlier version are its own, from PyPI; the migration is the one that docs/migrating.md prints.
"""

from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.migration import AFTER, BACK, BEFORE, BOTH
from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from tests.faults.processes import troupe
from tests.faults.upgrade_scene import NEW, OLD, CrewProcess, UpgradeScene
from tests.servers.earlier_package import install

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]

OLDEST, LATEST = "0.3.7", "0.19.0"
WITHOUT_DEAD_LETTERS = ("outbox",)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where an earlier version is, installed once."""
    return cache(lambda version: install(version, tmp_path_factory.mktemp("earlier")))


@pytest.fixture
async def scene(
    request: pytest.FixtureRequest, record: str, packages: Callable[[str], Path]
) -> AsyncIterator[UpgradeScene]:
    """The tables of an earlier version, which nobody uses yet."""
    package = packages(request.param)
    async with troupe(CrewProcess) as crew:
        scene = UpgradeScene(record, package, crew, is_stopping_safe=request.param != OLDEST)
        await scene.set_up()
        yield scene
    scene.tear_down()


@pytest.mark.parametrize("scene", [pytest.param(OLDEST, marks=pytest.mark.soak), LATEST], indirect=True)
async def test_there_and_back_and_there_for_good(scene: UpgradeScene, engine: AsyncEngine) -> None:
    has_letters = scene.has_dead_letters
    tables = BOTH if has_letters else WITHOUT_DEAD_LETTERS
    dropping = frozenset() if has_letters else frozenset({OLD})

    await scene.join(OLD, workers=2)
    await scene.handles(OLD)
    await scene.migrate(BEFORE, tables)
    if not has_letters:
        # What autogenerate would create for an application that had none.
        letters = MetaData()
        make_dlq_table(letters)
        scene.change_tables(letters, "create_all")
    await scene.handles(OLD)
    await scene.join(NEW, workers=2)
    await scene.handles(OLD, NEW)
    await scene.kill_one(OLD)
    await scene.leave(OLD)
    await scene.handles(NEW)

    # The deploy is taken back: those of before come again, and ours leave.
    await scene.join(OLD)
    await scene.handles(OLD, NEW)
    await scene.kill_one(NEW)
    await scene.stop_publishing(NEW)
    await scene.leave(NEW)
    await scene.handles(OLD)
    await scene.stop_publishing(OLD)
    await scene.is_empty()
    account = scene.account(dropping=dropping)
    assert account.wrongs() == {}, scene.histories(account)
    assert account.taken_over >= 2

    # And once more, for good.
    await scene.join(NEW)
    await scene.leave(OLD)
    await scene.migrate(AFTER, tables)
    await scene.handles(NEW)
    await scene.stop_publishing(NEW)
    await scene.is_empty()
    await scene.leave(NEW)
    account = scene.account(dropping=dropping)
    assert account.wrongs() == {}, scene.histories(account)
    assert account.dead > 0
    metadata = MetaData()
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    await OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq).validate_schema()


@pytest.mark.parametrize("scene", [LATEST], indirect=True)
async def test_after_the_last_step_the_way_back_is_open(scene: UpgradeScene) -> None:
    for step in (BEFORE, AFTER, BACK):
        await scene.migrate(step)
    await scene.join(OLD)
    await scene.handles(OLD)
    await scene.stop_publishing(OLD)
    await scene.is_empty()
    await scene.leave(OLD)
    account = scene.account()
    assert account.wrongs() == {}, scene.histories(account)
    assert account.dead > 0
