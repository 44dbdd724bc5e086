"""The policies of the security page confine a producer to its queues and topics, and everybody else works on."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.errors import MissingRight
from faststream_outbox.schema import validate_schema
from tests.rights.jobs import JOBS, announce, broker_of, consume, produce
from tests.rights.stage import SCHEMA, Stage

FAR = 2**63 - 1
BY_HAND = (
    f"INSERT INTO {SCHEMA}.outbox_log (position, uri, slot, payload, metadata, created_at, transaction_id)"
    " VALUES (:position, 'shop', 7, '1', '{}', now(), 1)"
)


@pytest.fixture
def confined(stage: Stage) -> Iterator[Stage]:
    """The stage with the policies of the page."""
    with stage.confined():
        yield stage


@pytest.fixture(params=["asyncpg", "psycopg"])
async def shop(request: pytest.FixtureRequest, confined: Stage) -> AsyncIterator[AsyncEngine]:
    async with confined.acting("shop", request.param) as engine:
        yield engine


async def test_own_queues_and_topics_are_open(confined: Stage, shop: AsyncEngine) -> None:
    await produce(confined, shop)
    await announce(confined, shop)


@pytest.mark.parametrize("target", [{"queue": "salaries"}, {"topic": "salaries"}, {"topic": "shopping"}], ids=str)
async def test_others_are_closed(confined: Stage, shop: AsyncEngine, target: dict[str, str]) -> None:
    broker = broker_of(confined, shop)
    async with AsyncSession(shop) as session:
        with pytest.raises(MissingRight, match=r"a policy of .* does not let this role write such a row"):
            await broker.publish(1, **target, session=session)


async def test_positions_are_drawn_and_not_chosen(confined: Stage, shop: AsyncEngine) -> None:
    await announce(confined, shop)
    async with AsyncSession(shop) as session:
        with pytest.raises(ProgrammingError, match="row-level security"):
            await session.execute(text(BY_HAND), {"position": FAR})
    assert confined.ask("SELECT count(*) FROM outbox_log") == [(3,)]


@pytest.mark.parametrize("role", ["outbox_scheduler", "outbox_worker", "outbox_operator", "outbox_viewer"])
async def test_others_do_their_jobs(confined: Stage, role: str) -> None:
    async with confined.acting(role) as engine:
        await validate_schema(engine, confined.table)
        await JOBS[role](confined, engine)


async def test_consumers_do_their_job(confined: Stage) -> None:
    async with confined.acting("outbox_consumer") as engine:
        await consume(confined, engine)
