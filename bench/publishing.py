"""Publishing: one message per transaction with a business row, and a thousand in one."""

from time import perf_counter

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from bench.drain import BODY
from bench.stage import Stage
from faststream_outbox.envelope import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import OutboxClient
from faststream_outbox.wakeup import NotifyMode

_BUSINESS = "insert into business (note) values ($1)"
_INSERT = "insert into outbox (queue, payload, headers) values ($1, $2, $3)"
_MANY = """
    insert into outbox (queue, payload, headers)
    select q, p, h::jsonb from unnest($1::text[], $2::bytea[], $3::text[]) as m (q, p, h)
"""


async def _asyncpg(stage: Stage) -> asyncpg.Connection:
    url = stage.engine.url
    return await asyncpg.connect(
        host=url.host, port=url.port, user=url.username, password=url.password, database=url.database
    )


async def one_by_one(stage: Stage, messages: int, notify: NotifyMode = "after_commit") -> float:
    """Messages a second, each in a transaction of its own with a business row, through an AsyncSession."""
    client = OutboxClient(stage.engine, stage.table, notify=notify)
    sessions = async_sessionmaker(stage.engine)
    began = perf_counter()
    for _ in range(messages):
        async with sessions() as session, session.begin():
            await session.execute(text("insert into business (note) values (:note)"), {"note": "order"})
            await publish(session, stage.table, Envelope(queue="orders", body=BODY), wakeups=client.wakeups)
    return messages / (perf_counter() - began)


async def bare_session(stage: Stage, messages: int) -> float:
    """The same with a bare INSERT in place of publish: what the session itself costs."""
    sessions = async_sessionmaker(stage.engine)
    insert = text("insert into outbox (queue, payload, headers) values (:queue, :payload, cast(:headers as jsonb))")
    values = {"queue": "orders", "payload": BODY, "headers": None}
    began = perf_counter()
    for _ in range(messages):
        async with sessions() as session, session.begin():
            await session.execute(text("insert into business (note) values (:note)"), {"note": "order"})
            await session.execute(insert, values)
    return messages / (perf_counter() - began)


async def raw_one_by_one(stage: Stage, messages: int) -> float:
    """The same on a bare asyncpg connection."""
    connection = await _asyncpg(stage)
    began = perf_counter()
    for _ in range(messages):
        async with connection.transaction():
            await connection.execute(_BUSINESS, "order")
            await connection.execute(_INSERT, "orders", BODY, None)
    rate = messages / (perf_counter() - began)
    await connection.close()
    return rate


async def thousands(stage: Stage, messages: int) -> float:
    """Messages a second, a thousand in a transaction, one call of publish each."""
    envelopes = [Envelope(queue="orders", body=BODY) for _ in range(1000)]
    began = perf_counter()
    for _ in range(messages // 1000):
        async with stage.engine.begin() as connection:
            await publish(connection, stage.table, *envelopes)
    return messages / (perf_counter() - began)


async def raw_thousands(stage: Stage, messages: int) -> float:
    """The same with unnest on a bare asyncpg connection."""
    connection = await _asyncpg(stage)
    queues, bodies, headers = ["orders"] * 1000, [BODY] * 1000, [None] * 1000
    began = perf_counter()
    for _ in range(messages // 1000):
        async with connection.transaction():
            await connection.execute(_MANY, queues, bodies, headers)
    rate = messages / (perf_counter() - began)
    await connection.close()
    return rate
