"""A log in partitions of ten positions each."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import make_log_tables
from tests.log.opened import ask
from tests.log.rig import LogRig


@pytest.fixture
async def bare(engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """The log, for which nobody has made a partition; what was detached of it goes at the end too."""
    tables = make_log_tables(MetaData(), "parted", "parted_offsets", partitioned=True)
    async with LogRig.made(engine, tables=tables) as rig:
        yield rig
    await ask(engine, "drop table if exists parted_p0, parted_p1")


@pytest.fixture
async def parts(bare: LogRig) -> LogRig:
    """The log with its first partitions."""
    await bare.outbox.partitions(10).ensure(ahead=2)
    return bare


async def attached(rig: LogRig) -> list[str]:
    """Parts of the log, but for the rest that nobody has made a partition for."""
    asked = "select relname from pg_inherits join pg_class on oid = inhrelid where inhparent = 'parted'::regclass"
    return sorted(row["relname"] for row in await rig.ask(asked) if row["relname"] != "parted_rest")
