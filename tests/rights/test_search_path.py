"""Where a role's search path leads to a stranger, whose tables and functions have names of ours and of built-in ones.

Tables with a schema are found there, and built-in functions come before those of the path. What fits the types of a
call better is not stopped by that, only by a path without strangers: every role does its job with an empty one.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.rights import stranger
from tests.rights.grants import ROLES
from tests.rights.jobs import JOBS, broker_of
from tests.rights.stage import Stage

pytestmark = pytest.mark.slow


@pytest.fixture
def trapped(stage: Stage) -> Iterator[Stage]:
    """The stage, and a stranger's schema beside it."""
    stranger.lay_traps(stage)
    yield stage
    stranger.remove_traps(stage)


@pytest.mark.parametrize("role", ROLES)
async def test_role_is_not_trapped_by_namesakes(trapped: Stage, role: str) -> None:
    async with trapped.acting(role, search_path=stranger.SCHEMA) as engine:
        await broker_of(trapped, engine).validate_schema()
        await JOBS[role](trapped, engine)


@pytest.mark.parametrize("role", ROLES)
async def test_role_with_an_empty_path_is_not_trapped_at_all(trapped: Stage, role: str) -> None:
    stranger.lay_better_matches(trapped)
    with trapped.login(role, search_path="''") as address:
        engine = create_async_engine(address)
        try:
            await broker_of(trapped, engine).validate_schema()
            await JOBS[role](trapped, engine)
        finally:
            await engine.dispose()


async def test_better_match_on_the_path_is_taken(trapped: Stage) -> None:
    # What the page warns of; and the proof that the traps of the test above are some.
    stranger.lay_better_matches(trapped)
    async with trapped.acting("outbox_viewer", search_path=stranger.SCHEMA) as engine:
        with pytest.raises(DBAPIError, match=stranger.TRAPPED):
            await broker_of(trapped, engine).validate_schema()
