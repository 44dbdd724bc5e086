"""Under row-level security, who looks and who operates sees all with the policies of the page, or hears what is hidden.

The dashboard, the command line, the gauges and the health checks, as the roles that the security page has.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.doctor import Doctor
from faststream_outbox.health import health
from faststream_outbox.overview import Overview
from tests.dashboard.place import Place
from tests.dashboard.promises.test_screens import every_page
from tests.dashboard.visitor import visiting
from tests.rights.commands import run
from tests.rights.jobs import broker_of
from tests.rights.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.examines]

LOOKING = ["status", "queues", "workers", "peek orders", "dead list", "groups list", "parked list", "timers list"]
HIDDEN = re.compile("row.level security", re.IGNORECASE)


@pytest.fixture
def confined(stage: Stage, place: Place) -> Iterator[Stage]:
    """The stage with the policies of the page, and one of everything."""
    with stage.confined():
        yield stage


@pytest.fixture
def hiding(confined: Stage) -> Stage:
    """The same without the policy that shows everything: nobody but the owner sees a row."""
    for table in ("outbox", "outbox_log"):
        confined.execute(f"DROP POLICY everything ON {table}")
    return confined


@pytest.fixture(params=["outbox_viewer", "outbox_operator"])
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def seeing(confined: Stage, role: str) -> AsyncIterator[AsyncEngine]:
    async with confined.acting(role) as engine:
        yield engine


def overview_of(stage: Stage, engine: AsyncEngine) -> Overview:
    return Overview(engine, table=stage.table, dlq_table=stage.dlq_table, log_tables=stage.log_tables)


async def test_dashboard_shows_every_screen(confined: Stage, place: Place, seeing: AsyncEngine) -> None:
    async with visiting(place.dashboard(source=seeing)) as visitor:
        for path, given in every_page(place):
            assert "Not answered" not in await visitor.page(path, **given), (path, given)
        assert "orders" in await visitor.page("/queues")


def test_command_line_shows_everything(confined: Stage, place: Place, role: str) -> None:
    with confined.login(role) as address:
        for line in LOOKING:
            ended = run(address, line)
            assert (ended.exit_code, ended.stderr) == (0, ""), (line, ended.output)
        found = json.loads(run(address, "queues --json").stdout)["data"]
    assert [(each["queue"], each["ready"] + each["leased"] + each["scheduled"]) for each in found] == [("orders", 3)]


async def test_gauges_and_health_are_those_of_the_owner(
    confined: Stage, engine: AsyncEngine, seeing: AsyncEngine
) -> None:
    seen, known = overview_of(confined, seeing), overview_of(confined, engine)
    try:
        counts = lambda found: [(each.queue, each.ready, each.leased, each.scheduled) for each in found]  # noqa: E731
        assert counts(await seen.queues()) == counts(await known.queues()) != []
        assert [each.parked for each in await seen.groups()] == [each.parked for each in await known.groups()]
    finally:
        await seen.close()
        await known.close()
    found = await health(broker_of(confined, seeing), timeout=30)
    assert not HIDDEN.search(str(found.as_dict()))


async def test_doctor_says_that_rows_are_hidden(hiding: Stage, role: str) -> None:
    async with hiding.acting(role) as engine:
        doctor = Doctor(engine, table=hiding.table, dlq_table=hiding.dlq_table, log_tables=hiding.log_tables)
        findings = await doctor.examine()
    assert [each for each in findings if HIDDEN.search(str(each))]


def test_command_line_says_that_rows_are_hidden(hiding: Stage, role: str) -> None:
    with hiding.login(role) as address:
        for line in ("doctor", "schema check"):
            ended = run(address, line)
            assert ended.exit_code != 0
            assert HIDDEN.search(ended.output), ended.output
        for line in LOOKING:
            ended = run(address, line)
            assert ended.exit_code == 0, ended.output
            assert "hides rows of outbox, outbox_log from this role" in ended.stderr, line


async def test_dashboard_says_that_rows_are_hidden(hiding: Stage, place: Place, role: str) -> None:
    async with hiding.acting(role) as engine, visiting(place.dashboard(source=engine)) as visitor:
        for path, given in every_page(place):
            assert (await visitor.get(path, **given)).status_code in (200, 404)
        assert HIDDEN.search(await visitor.page("/health"))


@pytest.mark.parametrize("role", ["outbox_worker", "outbox_viewer"], indirect=True)
async def test_health_says_that_rows_are_hidden(hiding: Stage, role: str) -> None:
    async with hiding.acting(role) as engine:
        found = await health(broker_of(hiding, engine), timeout=30)
    assert HIDDEN.search(str(found.degraded))
