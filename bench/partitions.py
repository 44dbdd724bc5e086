"""`python -m bench.partitions`: what a message of a topic costs with ten partitions, and with a thousand.

In turns and on one server, with the cases and the figures of `bench.ten_million`. All but the first partition are
empty: what they cost is being there. Then the time to drop one partition of a thousand messages, and one of a million.
"""

import argparse
import asyncio
import time
from datetime import timedelta

from sqlalchemy import MetaData

from bench.large_tables import GROUP, Filled, LargeStage, large_stage, reported
from bench.ten_million import compared, dispatch, lag, printed, publish_topic
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table

CASES = {
    "publish to a topic, 100 a transaction": publish_topic,
    "lag(), a call": lag,
    "dispatch of the last messages": dispatch,
}
SIZE = 1_000_000
_FILL = """
    insert into {table} (position, uri, slot, payload, metadata, created_at, transaction_id)
    select nextval('{table}_head_drawn_seq'), 'orders/' || i % 1000, 0, '1', '{{}}', now() - interval '1 day', 1
    from generate_series(1, {messages}) i
"""


async def partitioned(stage: LargeStage, name: str, count: int, size: int = SIZE) -> Filled:
    """A log with so many partitions, of which the numbers are in the first, and a group at its end."""
    metadata = MetaData()
    made = Filled(
        0,
        make_outbox_table(metadata, f"{name}_queue"),
        make_dlq_table(metadata, f"{name}_dlq"),
        make_log_tables(metadata, f"{name}_log", partitioned=True),
        make_inbox_table(metadata, f"{name}_inbox"),
    )
    async with Outbox(stage.engine, tables=made.log) as outbox:
        await outbox.setup()
        began = time.perf_counter()
        # A few at a time: each takes a lock until the end of its transaction.
        for ahead in range(0, count, 20):
            await outbox.partitions(size).ensure(ahead=min(ahead + 19, count - 1))
        reported(f"{name}: {count} partitions", began)
        async with stage.engine.begin() as connection:
            await outbox.seek(connection, "latest", GROUP, create=True)
    return made


async def dropped(stage: LargeStage, name: str, messages: int) -> float:
    """Seconds to drop a partition of so many messages, which every group has read."""
    made = await partitioned(stage, name, 3, messages + 1)
    await stage.run(_FILL.format(table=made.log.log.name, messages=messages + 1))
    async with Outbox(stage.engine, tables=made.log) as outbox:
        async with stage.engine.begin() as connection:
            await outbox.seek(connection, "latest", GROUP)
        began = time.perf_counter()
        cleaned = await outbox.clean(older_than=timedelta(hours=1))
        seconds = time.perf_counter() - began
    assert cleaned.partitions == 1, cleaned
    return seconds


async def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(prog="bench.partitions")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--few", type=int, default=10)
    options.add_argument("--many", type=int, default=1000)
    options.add_argument("--rows", type=int, default=1_000_000, help="of the larger partition that is dropped")
    chosen = options.parse_args()
    async with large_stage() as stage:
        sizes = {
            name: await partitioned(stage, name, count)
            for name, count in (("small", chosen.few), ("large", chosen.many))
        }
        found = await compared(stage, sizes, CASES, chosen.rounds)
        print(f"\nsmall is {chosen.few} partitions, large is {chosen.many}\n" + printed(found))
        for messages in (1000, chosen.rows):
            print(f"drop a partition of {messages:,}: {await dropped(stage, f'd{messages}', messages):.2f} s")


if __name__ == "__main__":
    asyncio.run(main())
