"""Names of every kind, on both drivers: of tables, schemas, queues, keys, timers; and schemas that an engine maps."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.schema import CreateSchema, DropSchema

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import cancel_timer, publish
from faststream_outbox.queue import DONE, Claim, Dead, Outcome, Selection, pause, resume
from faststream_outbox.schema import make_dlq_table, make_outbox_table, validate_schema
from tests.queue.rig import Rig

AWKWARD = [
    *("a b", "it's", 'say "so"', "100%", "%s", "%(queue)s", ":id", "a:b::c", "{table}", "{dead}", "$1", "ŁÓDŹ 漢"),
    *("\\", " ", "\n\t\x01\x7f", "🦊\u202e", "'; drop table outbox; --", "/*if dead*/", "x" * 240),
]
LONGEST = "é" * 20 + "Ab cdef"
SCHEMA = 'The %s "schema": {dead}'


@pytest.fixture
def schema(builder: Engine) -> Iterator[str]:
    with builder.begin() as connection:
        connection.execute(CreateSchema(SCHEMA))
    yield SCHEMA
    with builder.begin() as connection:
        connection.execute(DropSchema(SCHEMA, cascade=True))


def _tables(builder: Engine, schema: str | None, name: str) -> tuple[Table, Table]:
    metadata = MetaData(schema=schema)
    tables = make_outbox_table(metadata, name), make_dlq_table(metadata, name[:20] + "_dlq")
    metadata.create_all(builder)
    return tables


async def _works(engine: AsyncEngine, table: Table, dead: Table) -> None:
    """Every kind of message gets through, under awkward names."""
    await validate_schema(engine, table, dead)
    rig = Rig(engine, table, dead)
    seen: list[tuple[str, str | None, str | None]] = []

    async def handle(claim: Claim) -> Outcome:
        if claim.payload == b"dead":
            return Dead()
        seen.append((claim.queue, claim.key, claim.timer_id))
        return DONE

    try:
        async with AsyncSession(engine) as session, session.begin():
            for name in AWKWARD:
                options: dict[str, Any] = {"queue": name, "body": b"1"}
                messages = [Envelope(**options), Envelope(**options, key=name), Envelope(**options, timer_id=name)]
                later = Envelope(**options, timer_id=f"{name} later", activate_in=timedelta(hours=1))
                await publish(session, table, *messages, later, wakeups=rig.client.wakeups)
                assert await cancel_timer(session, table, queue=name, timer_id=f"{name} later")
        assert await pause(rig.client, AWKWARD[5])
        assert await resume(rig.client, AWKWARD[5])
        await rig.work(handle, AWKWARD, max_workers=4)
        await rig.witness.wait(events.Handled, count=3 * len(AWKWARD))
        assert sorted(seen, key=str) == sorted(
            [case for name in AWKWARD for case in ((name, None, None), (name, name, None), (name, None, name))], key=str
        )
        await rig.put("dead", queue=AWKWARD[0])
        await rig.witness.wait(events.Died)
        assert (await rig.letters.replay(Selection(queue=AWKWARD[0]))).replayed == 1
        await rig.witness.wait(events.Died, count=2)
    finally:
        await rig.close()


async def test_awkward_names_of_tables_and_schemas(driver_engine: AsyncEngine, builder: Engine, schema: str) -> None:
    await _works(driver_engine, *_tables(builder, schema, LONGEST))


async def test_a_schema_that_the_engine_maps(driver_engine: AsyncEngine, builder: Engine, schema: str) -> None:
    _tables(builder, schema, "outbox")
    metadata = MetaData(schema="tenant")
    mapped = driver_engine.execution_options(schema_translate_map={"tenant": schema})
    await _works(mapped, make_outbox_table(metadata), make_dlq_table(metadata, "outbox_dlq"))
    async with driver_engine.connect() as connection:
        assert await connection.scalar(text("select to_regclass('outbox') is null"))
