"""`python -m bench.publish_path`: what publishing costs beside the same rows written by hand, on the same table.

All ways take turns, a transaction each, on one server and in one process; what is shown is the transaction in the
middle of all of them. Client CPU counts, because it moves least with the neighbours; wall time stands beside it.
One a transaction: a business row, and a message beside it; no NOTIFY, which would go on during somebody else's turn.
1,000 a transaction: the yardstick encodes the same bodies, writes them with one statement and reads the ids.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from bench.stage import Stage, stage
from faststream_outbox import Envelope, OutboxBroker
from faststream_outbox.publish import publish

BODY = {"order_id": 12345, "amount": 99.5}
PLAIN = b'{"order_id": 12345, "amount": 99.5}'
JSON = {"content-type": "application/json"}
HEADERS = '{"content-type": "application/json"}'
BUSINESS = text("insert into business (note) values (:note)")
BARE = text("insert into outbox (queue, payload, headers) values (:queue, :payload, cast(:headers as jsonb))")
MANY = """
    insert into outbox (queue, payload, headers)
    select $1, p, $2::text::jsonb from unnest($3::bytea[]) with ordinality as m (p, place) order by place
    returning id
"""
EACH = 1000
WARMING = 10

Way = Callable[[], Awaitable[None]]


def single(made: Stage) -> dict[str, Way]:
    """One message a transaction, by several ways; the first is a transaction without one."""
    sessions = async_sessionmaker(made.engine)
    broker = OutboxBroker(made.engine, outbox_table=made.table, notify="off")

    def way(write: Callable[[Any], Awaitable[Any]] | None) -> Way:
        async def run() -> None:
            async with sessions() as session, session.begin():
                await session.execute(BUSINESS, {"note": "order"})
                if write is not None:
                    await write(session)

        return run

    def envelope() -> Envelope:
        return Envelope(queue="orders", body=PLAIN, headers=JSON)

    return {
        "business row alone": way(None),
        "bare INSERT": way(
            lambda session: session.execute(BARE, {"queue": "orders", "payload": PLAIN, "headers": HEADERS})
        ),
        "engine": way(lambda session: publish(session, made.table, envelope())),
        "broker": way(lambda session: broker.publish(BODY, "orders", session=session)),
    }


def thousand(made: Stage) -> dict[str, Way]:
    """A thousand messages a transaction, by several ways; the first is by hand."""
    sessions = async_sessionmaker(made.engine)
    broker = OutboxBroker(made.engine, outbox_table=made.table)

    async def by_hand() -> None:
        async with made.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            async with driver.transaction():
                payloads = [json.dumps(body).encode() for body in [BODY] * EACH]
                ids = [row[0] for row in await driver.fetch(MANY, "orders", HEADERS, payloads)]
                assert len(ids) == EACH

    async def by_engine() -> None:
        async with sessions() as session, session.begin():
            envelopes = [Envelope(queue="orders", body=PLAIN, headers=JSON) for _ in range(EACH)]
            await publish(session, made.table, *envelopes)

    async def by_broker() -> None:
        async with sessions() as session, session.begin():
            await broker.publish_batch(*[BODY] * EACH, queue="orders", session=session)

    return {"by hand, with asyncpg": by_hand, "engine, bodies encoded": by_engine, "broker": by_broker}


async def taken(ways: dict[str, Way], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds of each transaction, the ways in turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for name in [*ways] * (rounds + WARMING):
        cpu, wall = time.process_time(), time.perf_counter()
        await ways[name]()
        found[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {name: spent[WARMING:] for name, spent in found.items()}


def report(title: str, found: dict[str, list[tuple[float, float]]], *, each: int = 1, alone: str = "") -> None:
    """CPU and wall time of a message by each way, beside the yardstick, which is the first after `alone`."""
    micros = {
        name: [median(one[place] for one in spent) / each * 1e6 for place in (0, 1)] for name, spent in found.items()
    }
    yardstick = next(spent for name, spent in micros.items() if name != alone)
    print(f"\n{title}\n{'':<26}{'CPU µs':>9}{'× yardstick':>13}{'adds ×':>8}{'wall µs':>10}{'× yardstick':>13}")
    for name, (cpu, wall) in micros.items():
        adds = ""
        if alone and name != alone:
            adds = f"{(cpu - micros[alone][0]) / (yardstick[0] - micros[alone][0]):.2f}"
        line = f"{name:<26}{cpu:>9.1f}{cpu / yardstick[0]:>13.2f}{adds:>8}"
        print(f"{line}{wall:>10.1f}{wall / yardstick[1]:>13.2f}", flush=True)


async def main(rounds: int) -> None:
    """Measure and print."""
    async with stage() as made:
        found = await taken(single(made), rounds)
        report("one a transaction, beside a business row", found, alone="business row alone")
        await made.reset()
        report("1,000 a transaction", await taken(thousand(made), rounds // 5), each=EACH)


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="bench.publish_path")
    options.add_argument("--rounds", type=int, default=500)
    asyncio.run(main(options.parse_args().rounds))
