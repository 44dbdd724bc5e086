"""Reading a backlog with a handler that does nothing: dispatch, run, the iterator, and by hand.

By hand is what nobody can do without: fetch a batch in the order of positions, move the cursor, and again; with no
leases, no fence, no order among transactions, and no message objects.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from time import perf_counter, process_time
from typing import Any

import asyncpg

from bench.log_stage import LogStage
from faststream_outbox._internal.log.fetcher import READ_BYTES
from faststream_outbox._internal.log.sharing.slots import SLOTS, as_filters
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.log import Outbox, OutboxMessage

_FETCH = """
    select position, uri, payload::text, metadata::text, created_at, transaction_id
    from {log} where position > {after} order by position limit {limit}
"""
_MOVE = "update {log}_offsets set position = {position} where consumer_group = 'by hand'"
_JOIN = "insert into {log}_offsets (consumer_group, lo, hi) values ('by hand', 0, 255) on conflict do nothing"

_groups = count()


def fresh_group() -> str:
    """The name of a group that has read nothing."""
    return f"group-{next(_groups)}"


async def _ignored(message: OutboxMessage) -> None:
    pass


async def dispatches(outbox: Outbox, messages: int, batch: int) -> AsyncIterator[int]:
    """How many each dispatch handled, for a group of its own, until it has so many."""
    group, left = fresh_group(), messages
    while left > 0:
        handled = (await outbox.dispatch(_ignored, group, batch_size=batch)).handled
        left -= handled
        yield handled


async def fetches(connection: asyncpg.Connection, log: str, messages: int, batch: int) -> AsyncIterator[int]:
    """How many each fetch by hand found, from the beginning, until there are so many."""
    fetch, move = _FETCH.format(log=log, after="$1", limit="$2"), _MOVE.format(log=log, position="$1")
    left, position = messages, 0
    while left > 0:
        rows = await connection.fetch(fetch, position, batch)
        left, position = left - len(rows), rows[-1][0]
        await connection.execute(move, position)
        yield len(rows)


async def join_by_hand(connection: asyncpg.Connection, log: str) -> None:
    """Make the cursor that `fetches` moves."""
    await connection.execute(_JOIN.format(log=log))


async def dispatched(outbox: Outbox, messages: int, batch: int) -> tuple[float, float]:
    """Messages a second through `dispatch`, and microseconds of this process for each, whoever else is busy."""
    handled = 0
    began, busy = perf_counter(), process_time()
    async for each in dispatches(outbox, messages, batch):
        handled += each
    return handled / (perf_counter() - began), (process_time() - busy) / handled * 1e6


async def run(outbox: Outbox, messages: int, concurrency: int) -> float:
    """Messages a second through `run`, from its start to its end."""
    handled = 0
    stop = asyncio.Event()

    async def handle(message: OutboxMessage) -> None:
        nonlocal handled
        handled += 1
        if handled == messages:
            stop.set()

    began = perf_counter()
    await outbox.run(handle, fresh_group(), concurrency=concurrency, stop_event=stop)
    return handled / (perf_counter() - began)


async def iterated(outbox: Outbox, messages: int) -> float:
    """Messages a second through `async for`."""
    handled = 0
    began = perf_counter()
    reading = outbox.messages(fresh_group())
    async for _ in reading:
        handled += 1
        if handled == messages:
            break
    await reading.aclose()  # type: ignore[attr-defined]
    return handled / (perf_counter() - began)


async def by_asyncpg(stage: LogStage, outbox: Outbox, messages: int, batch: int) -> float:
    """Messages a second, fetched by hand."""
    name = outbox.tables.log.name
    connection = await stage.asyncpg()
    await join_by_hand(connection, name)
    handled = 0
    began = perf_counter()
    async for each in fetches(connection, name, messages, batch):
        handled += each
    rate = handled / (perf_counter() - began)
    await connection.close()
    return rate


async def by_psycopg(stage: LogStage, outbox: Outbox, messages: int, batch: int) -> float:
    """Messages a second, fetched by hand with the other driver."""
    name = outbox.tables.log.name
    fetch, move = _FETCH.format(log=name, after="%s", limit="%s"), _MOVE.format(log=name, position="%s")
    connection = await stage.psycopg()
    await connection.execute(_JOIN.format(log=name).encode())
    handled = position = 0
    began = perf_counter()
    while handled < messages:
        rows = await (await connection.execute(fetch.encode(), (position, batch), binary=True)).fetchall()
        handled, position = handled + len(rows), rows[-1][0]
        await connection.execute(move.encode(), (position,))
    rate = handled / (perf_counter() - began)
    await connection.close()
    return rate


async def fetch_times(outbox: Outbox, messages: int, batch: int, times: int) -> list[float]:
    """Seconds that the library's fetch of a batch takes, from places all over the log."""
    connection = outbox.client.connection
    sql = statements("log", outbox.client.names)["fetch"]
    seconds = []
    for number in range(times):
        low = 1 + (number * 7919 * batch) % max(1, messages - batch)
        values: dict[str, Any] = {
            "ticks": [1],
            "los": [low],
            "his": [low + batch - 1],
            "limit": batch,
            "bytes": READ_BYTES,
            "unreadable": [],
            **as_filters({"": 2**SLOTS - 1}),
        }
        began = perf_counter()
        rows = await connection.fetch(sql, values)
        seconds.append(perf_counter() - began)
        assert len(rows) == batch
    return sorted(seconds)


async def sequenced(outbox: Outbox, messages: int) -> float:
    """Rows a second that are put into ticks."""
    began = perf_counter()
    await outbox.client.sequencer.catch_up()
    return messages / (perf_counter() - began)
