"""Publishing to the outbox, and waiting until it is empty."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream import FastStream
from sqlalchemy.ext.asyncio import AsyncSession

from tests.broker.topics.stage import Stage
from tests.waiting import eventually


async def publish(stage: Stage, *bodies: Any, queue: str = "orders", **options: Any) -> None:
    """Publish to a queue, in one transaction."""
    async with AsyncSession(stage.engine) as session, session.begin():
        for body in bodies:
            await stage.broker.publish(body, queue, session=session, **options)


@asynccontextmanager
async def relaying(stage: Stage, to: Any, broker: Any, *bodies: Any, **options: Any) -> AsyncIterator[None]:
    """An application that relays a queue in which these wait."""
    stage.broker.relay("orders", to=to)
    await publish(stage, *bodies, **options)
    async with FastStream(stage.broker, broker, logger=None):
        yield


async def is_empty(stage: Stage, queue: str = "orders") -> None:
    """Wait until nothing of a queue is left."""

    async def it_is_so() -> bool:
        return await stage.in_queue(queue) == []

    await eventually(it_is_so)


async def own_id(stage: Stage) -> str:
    """The id of the only message that waits."""
    (row,) = await stage.sql(f"select message_id from {stage.table.name}")
    return str(row["message_id"])
