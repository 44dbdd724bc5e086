"""Headers of fifty megabytes arrive as they were, or are refused by `publish` with the transaction as it was."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import Envelope
from faststream_outbox.errors import InvalidMessage
from faststream_outbox.log import OutboxMessage
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Outcome
from tests.log.opened import Collector, opened
from tests.queue.rig import Rig
from tests.waiting import eventually

SIZE = 50_000_000
LARGE: dict[str, Callable[[], dict[str, Any]]] = {
    "a name": lambda: {"x" * SIZE: 1},
    "text": lambda: {"a": "x" * SIZE},
    "quotes": lambda: {"a": '"' * (SIZE // 2)},
    "letters": lambda: {"a": "漢" * (SIZE // 3)},
    "many": lambda: {f"{number:08}": "x" * 88 for number in range(SIZE // 100)},
}
MANY = {"numbers": lambda: {"a": [1] * (SIZE // 2)}, "lists": lambda: {"a": [[]] * (SIZE // 3)}}


async def arrives_in_a_queue(rig: Rig, headers: dict[str, Any]) -> None:
    arrived: list[bool] = []

    async def handle(claim: Claim) -> Outcome:
        arrived.append(claim.headers == headers)
        return DONE

    async with AsyncSession(rig.engine) as session, session.begin():
        await publish(session, rig.table, Envelope(queue="orders", body=b"", headers=headers))
    worker = await rig.work(handle)
    await eventually(rig.is_empty, 120)
    await worker.stop()
    assert arrived == [True]


async def arrives_in_a_topic(rig: Rig, headers: dict[str, Any]) -> None:
    async with opened(rig.engine, outbox_table="large_headers") as outbox:
        async with AsyncSession(rig.engine) as session, session.begin():
            await outbox.publish(session, OutboxMessage("k", 1, headers))
        collector = Collector()
        await outbox.dispatch(collector, "g")
        assert [message.metadata == headers for message in collector.messages] == [True]


@pytest.mark.slow
async def test_they_arrive(rig: Rig) -> None:
    headers = LARGE["letters"]()
    await arrives_in_a_queue(rig, headers)
    await arrives_in_a_topic(rig, headers)


@pytest.mark.soak
@pytest.mark.parametrize("shape", LARGE)
async def test_they_arrive_in_every_shape(driver_rig: Rig, shape: str) -> None:
    headers = LARGE[shape]()
    await arrives_in_a_queue(driver_rig, headers)
    await arrives_in_a_topic(driver_rig, headers)


@pytest.mark.slow
@pytest.mark.parametrize("shape", MANY)
async def test_too_many_values_for_a_queue_are_refused_before_any_sql(rig: Rig, shape: str) -> None:
    async with AsyncSession(rig.engine) as session, session.begin():
        await session.execute(text("create temp table effect on commit drop as select 1"))
        with pytest.raises(InvalidMessage, match="Put them into the body"):
            await publish(session, rig.table, Envelope(queue="orders", body=b"", headers=MANY[shape]()))
        assert await session.scalar(text("select count(*) from effect")) == 1
    assert await rig.is_empty()


@pytest.mark.soak
@pytest.mark.parametrize("shape", MANY)
async def test_many_values_arrive_in_a_topic(rig: Rig, shape: str) -> None:
    await arrives_in_a_topic(rig, MANY[shape]())
