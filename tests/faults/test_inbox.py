"""COMMIT of a delivery is cut off: whether it came about is found out, and every message takes effect once."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, Text, event, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import Inbox, events, make_inbox_table
from tests.faults.proxy import Proxy, Way
from tests.tables import all_existing
from tests.waiting import eventually

pytestmark = pytest.mark.faults

PATIENCE = 60.0


class Far:
    """An inbox behind the proxy, and its effects as they are seen from near the server."""

    def __init__(self, engine: AsyncEngine, near: AsyncEngine) -> None:
        made = MetaData()
        self.table, self.effects = make_inbox_table(made), Table("effects", made, Column("what", Text))
        self.engine = engine
        self.inbox = Inbox(engine, self.table, consumer="billing", keep=None)
        self.heard: list[object] = []
        self.inbox.events.subscribe(self.heard.append)
        self.near = near
        self.runs = 0

    async def deliver(self) -> None:
        async with self.inbox.receive("m1", source="orders") as receipt:
            if receipt.is_new:
                self.runs += 1
                await receipt.session.execute(insert(self.effects).values(what="m1"))

    async def written(self) -> list[str]:
        async with self.near.connect() as connection:
            return list((await connection.execute(select(self.effects.c.what))).scalars())


@pytest.fixture
async def far(far_engine: AsyncEngine, engine: AsyncEngine, builder: Engine) -> AsyncIterator[Far]:
    far = Far(far_engine, engine)
    with all_existing([far.table, far.effects], builder):
        yield far
        await far_engine.dispose()
        await engine.dispose()


async def test_commit_whose_answer_was_lost_is_known_to_have_come_about(far: Far, proxy: Proxy) -> None:
    event.listen(far.engine.sync_engine, "commit", lambda _: setattr(proxy, "way", Way.DEAF), once=True)
    delivering = asyncio.create_task(far.deliver())
    await eventually(far.written, PATIENCE)
    proxy.way = Way.OPEN
    proxy.cut()
    await delivering
    await far.deliver()
    assert (await far.written(), far.runs) == (["m1"], 1)
    kinds = [type(heard) for heard in far.heard]
    assert kinds[-2:] == [events.Received, events.DuplicateSkipped]


async def test_commit_that_never_arrived_is_known_to_have_failed(far: Far, proxy: Proxy) -> None:
    event.listen(far.engine.sync_engine, "commit", lambda _: setattr(proxy, "way", Way.BLACK_HOLE), once=True)
    delivering = asyncio.create_task(far.deliver())
    await eventually(lambda: proxy.swallowed, PATIENCE)
    proxy.cut()
    proxy.way = Way.OPEN
    with pytest.raises(Exception, match=r"."):
        await delivering
    assert await far.written() == []
    await far.deliver()
    assert (await far.written(), far.runs) == (["m1"], 2)
