"""Publishing to the log: a hundred messages in a transaction, and one; by the library and by hand.

By hand is the same INSERT into the same table, with arrays that are made as the library makes them from messages.
"""

import json
from time import perf_counter

from sqlalchemy.ext.asyncio import async_sessionmaker

from bench.log_stage import KEYS, LogStage
from faststream_outbox.log import Outbox, OutboxMessage, slot_of

_INSERT = """
    with x as materialized (select pg_current_xact_id()::text::bigint as xid)
    insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id)
    select nextval('{log}_head_drawn_seq'), m.uri, m.slot, m.payload::json, '{{}}', statement_timestamp(), x.xid
    from x, unnest({uris}::text[], {slots}::smallint[], {payloads}::text[])
         with ordinality as m (uri, slot, payload, place)
    order by m.place
    returning position
"""


def _messages(start: int, count: int) -> list[OutboxMessage]:
    return [
        OutboxMessage(f"orders/{number % KEYS}", {"order_id": number, "amount": 99.5})
        for number in range(start, start + count)
    ]


def _columns(start: int, count: int) -> tuple[list[str], list[int], list[str]]:
    uris = [f"orders/{number % KEYS}" for number in range(start, start + count)]
    bodies = [json.dumps({"order_id": number, "amount": 99.5}) for number in range(start, start + count)]
    return uris, [slot_of(uri) for uri in uris], bodies


async def through_sessions(stage: LogStage, outbox: Outbox, transactions: int, each: int) -> float:
    """Messages a second, in transactions of an AsyncSession."""
    sessions = async_sessionmaker(stage.engine)
    began = perf_counter()
    for number in range(transactions):
        async with sessions() as session, session.begin():
            await outbox.publish(session, *_messages(number * each, each))
    return transactions * each / (perf_counter() - began)


async def through_asyncpg(stage: LogStage, outbox: Outbox, transactions: int, each: int) -> float:
    """Messages a second, published in transactions of a bare asyncpg connection."""
    connection = await stage.asyncpg()
    began = perf_counter()
    for number in range(transactions):
        async with connection.transaction():
            await outbox.publish(connection, *_messages(number * each, each))
    rate = transactions * each / (perf_counter() - began)
    await connection.close()
    return rate


async def by_asyncpg(stage: LogStage, outbox: Outbox, transactions: int, each: int) -> float:
    """Messages a second, inserted by hand."""
    connection = await stage.asyncpg()
    sql = _INSERT.format(log=outbox.tables.log.name, uris="$1", slots="$2", payloads="$3")
    began = perf_counter()
    for number in range(transactions):
        async with connection.transaction():
            await connection.fetch(sql, *_columns(number * each, each))
    rate = transactions * each / (perf_counter() - began)
    await connection.close()
    return rate


async def by_psycopg(stage: LogStage, outbox: Outbox, transactions: int, each: int) -> float:
    """Messages a second, inserted by hand with the other driver."""
    connection = await stage.psycopg()
    sql = _INSERT.format(log=outbox.tables.log.name, uris="%s", slots="%s", payloads="%s")
    began = perf_counter()
    for number in range(transactions):
        async with connection.transaction():
            await (await connection.execute(sql.encode(), _columns(number * each, each))).fetchall()
    rate = transactions * each / (perf_counter() - began)
    await connection.close()
    return rate
