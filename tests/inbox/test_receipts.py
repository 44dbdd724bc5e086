"""What operators see of receipts, and what they delete."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.inbox import receipts as module
from faststream_outbox._internal.inbox.receipts import Receipts
from faststream_outbox._internal.schema.names import Names
from faststream_outbox.errors import InvalidOption
from tests.inbox.conftest import Scene


@pytest.fixture
async def receipts(scene: Scene) -> AsyncIterator[Receipts]:
    connection = DedicatedConnection(scene.engine)
    yield Receipts(connection, Names.of(scene.table))
    await connection.close()


async def fill(scene: Scene) -> None:
    """Three receipts of one consumer, an hour apart, and one of another."""
    rows = "select 'billing', 'orders', i::text, now() - make_interval(hours => i) from generate_series(1, 3) i"
    async with scene.engine.begin() as connection:
        await connection.execute(text(f"insert into inbox (consumer, source, message_id, received_at) {rows}"))
        await connection.execute(text("insert into inbox (consumer, source, message_id) values ('audit', 'x', '1')"))


async def test_of_an_empty_table_there_is_nothing(receipts: Receipts) -> None:
    counts = await receipts.count()
    assert (counts.consumers, counts.first_received_at, counts.last_received_at) == ([], None, None)


async def test_are_counted_by_consumer(scene: Scene, receipts: Receipts) -> None:
    await fill(scene)
    counts = await receipts.count()
    assert [(each.consumer, each.receipts, each.is_estimate) for each in counts.consumers] == [
        ("audit", 1, False),
        ("billing", 3, False),
    ]
    assert counts.first_received_at is not None
    assert counts.last_received_at is not None
    assert counts.last_received_at - counts.first_received_at > timedelta(hours=2)


async def test_are_counted_up_to_a_bound(scene: Scene, receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(scene)
    monkeypatch.setattr(module, "MOST_COUNTED", 2)
    counts = await receipts.count()
    assert [(each.receipts, each.is_estimate) for each in counts.consumers] == [(1, False), (2, True)]
    assert await receipts.count_old(timedelta(minutes=30)) == 2


async def test_that_are_old_are_counted_and_deleted(
    scene: Scene, receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(scene)
    keep = timedelta(minutes=90)
    assert await receipts.count_old(keep) == 2
    steps: list[int] = []
    assert (await receipts.clean(keep, steps.append), steps) == (2, [2])
    assert [consumer for consumer, _, _ in await scene.receipts()] == ["audit", "billing"]


async def test_a_time_that_would_keep_nothing_is_refused(receipts: Receipts) -> None:
    with pytest.raises(InvalidOption, match="keep"):
        await receipts.clean(timedelta(seconds=-1))
