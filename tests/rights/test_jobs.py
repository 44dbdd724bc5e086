"""Each role of the security page does its whole job with the page's grants, and not with a right on a sequence less."""

import pytest

from faststream_outbox.errors import ConnectionUnusable
from faststream_outbox.sql.rights import REFUSED, sqlstate_of
from tests.rights.grants import ROLES, Right, rights
from tests.rights.jobs import JOBS
from tests.rights.stage import Stage

ON_SEQUENCES = [right for role in ROLES for right in rights(role) if right.on.startswith("SEQUENCE")]


async def run(stage: Stage, role: str, driver: str = "asyncpg") -> None:
    engine = stage.engine(role, driver)
    try:
        await JOBS[role](stage, engine)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("role", ROLES)
async def test_role_does_its_job(stage: Stage, role: str, driver: str) -> None:
    await run(stage, role, driver)


@pytest.mark.parametrize("right", ON_SEQUENCES, ids=lambda right: f"{right.role}-{right.on}-{right.privilege}")
async def test_no_right_of_a_sequence_is_granted_in_vain(stage: Stage, right: Right) -> None:
    with stage.without(right.revoke):
        try:
            await run(stage, right.role)
        except (AssertionError, ConnectionUnusable):
            return
        except Exception as error:
            if sqlstate_of(error) == REFUSED:
                return
            raise
    pytest.fail("the job was done without it")
