"""Draining a backlog with a handler that does nothing: ours, and asyncpg's claim and delete by hand."""

import asyncio
from time import perf_counter
from typing import Any
from uuid import uuid4

import asyncpg

from bench.stage import Stage
from faststream_outbox.envelope import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Worker
from faststream_outbox.queue.outcome import Outcome

BODY = b'{"order_id": 12345, "amount": 99.5}'

_CLAIM = """
    with picked as (
        select id from outbox
        where queue = 'orders' and next_attempt_at <= now()
          and (acquired_token is null or acquired_at < now() - interval '60 seconds')
        order by next_attempt_at, id limit $1 for update skip locked
    )
    update outbox o set acquired_token = $2, acquired_at = now(), deliveries_count = deliveries_count + 1
    from picked p where o.id = p.id
    returning o.id, o.payload
"""
_DELETE = "delete from outbox where id = any ($1::bigint[]) and acquired_token = $2"


async def backlog(stage: Stage, messages: int, *, keys: int = 0, depth_first: bool = False) -> None:
    """Publish so many messages; with `keys`, spread over them, or one key after the other."""
    per_key = max(1, messages // keys) if keys else 1
    for start in range(0, messages, 1000):
        envelopes = [
            Envelope(
                queue="orders",
                body=BODY,
                key=None if not keys else f"k{number // per_key if depth_first else number % keys}",
            )
            for number in range(start, min(start + 1000, messages))
        ]
        async with stage.engine.begin() as connection:
            await publish(connection, stage.table, *envelopes)


async def ours(stage: Stage, messages: int, **options: Any) -> float:
    """Messages a second through a worker; returns when the last outcome is written."""
    handled = 0
    done = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        nonlocal handled
        handled += 1
        if handled == messages:
            done.set()
        return DONE

    async def handle_batch(claims: list[Claim]) -> list[Outcome]:
        nonlocal handled
        handled += len(claims)
        if handled == messages:
            done.set()
        return [DONE] * len(claims)

    client = OutboxClient(stage.engine, stage.table, dlq_table=stage.dlq_table)
    chosen: Any = handle_batch if options.get("batch") else handle
    worker = Worker(stage.engine, stage.table, "orders", chosen, client=client, **options)
    began = perf_counter()
    await worker.start()
    await done.wait()
    await worker.stop()
    return messages / (perf_counter() - began)


async def raw(stage: Stage, messages: int, batch: int) -> float:
    """Messages a second by claim and delete, one after the other, on one asyncpg connection."""
    url = stage.engine.url
    connection = await asyncpg.connect(
        host=url.host, port=url.port, user=url.username, password=url.password, database=url.database
    )
    handled = 0
    began = perf_counter()
    while handled < messages:
        token = uuid4()
        rows = await connection.fetch(_CLAIM, batch, token)
        await connection.execute(_DELETE, [row[0] for row in rows], token)
        handled += len(rows)
    rate = messages / (perf_counter() - began)
    await connection.close()
    return rate
