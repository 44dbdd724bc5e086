"""What may be passed as a session, and what may not; checked by mypy and basedpyright, not run.

An ignore that is not needed is an error for mypy: what follows one is refused.
"""

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from faststream_outbox import OutboxBroker
from faststream_outbox.log import Outbox, OutboxMessage

MESSAGE = OutboxMessage("orders", 1)


async def accepted(
    outbox: Outbox,
    broker: OutboxBroker,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    connection: AsyncConnection,
    raw: psycopg.AsyncConnection[tuple[object, ...]],
) -> None:
    for each in (session, scoped, connection, raw):
        await outbox.publish(each, MESSAGE)
        await outbox.seek(each, "latest", "billing")
        await outbox.get_position(each, "billing")
        await broker.publish(1, queue="orders", session=each)
    await broker.publish_batch(1, queue="orders", session=raw)


def accepted_without_an_event_loop(
    outbox: Outbox,
    broker: OutboxBroker,
    session: Session,
    scoped: scoped_session[Session],
    connection: Connection,
    raw: psycopg.Connection[tuple[object, ...]],
) -> None:
    for each in (session, scoped, connection, raw):
        outbox.publish_sync(each, MESSAGE)
        broker.publish_sync(1, queue="orders", session=each)


async def refused(
    outbox: Outbox,
    broker: OutboxBroker,
    engine: AsyncEngine,
    sync_engine: Engine,
    session: Session,
    raw: psycopg.Connection[tuple[object, ...]],
) -> None:
    await outbox.publish(engine, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await outbox.publish(session, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await outbox.publish(raw, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await outbox.publish(MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await outbox.seek("latest", "latest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await outbox.set_position(None, "billing")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await broker.publish(1, queue="a", session=engine)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await broker.publish(1, queue="a", session=session)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    outbox.publish_sync(sync_engine, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def refused_without_an_event_loop(
    outbox: Outbox, broker: OutboxBroker, session: AsyncSession, raw: psycopg.AsyncConnection[tuple[object, ...]]
) -> None:
    outbox.publish_sync(session, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    outbox.publish_sync(raw, MESSAGE)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    broker.publish_sync(1, queue="a", session=session)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
