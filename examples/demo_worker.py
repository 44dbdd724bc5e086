"""One worker process of the demo: writes a receipt for each order, exactly once.

The receipt and the end of the message are one commit, so a process that is killed leaves both or
neither. The process runs until its standard input is closed: the demo holds the other end, so that
no worker outlives it, however it ends. Started by `examples.demo` as
`python -m examples.demo_worker <name> <dsn>`.
"""

import asyncio
import json
import logging
import sys

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from examples.demo_tables import outbox, outbox_dlq, receipts
from faststream_outbox import ExponentialRetry
from faststream_outbox.queue import SETTLED, Claim, OutboxClient, Outcome, Worker

HANDLERS = 4
LEASE_SECONDS = 5.0
WORK_SECONDS = 0.1
RETRIES = ExponentialRetry(initial_delay_seconds=0.2, max_attempts=3)


async def run(name: str, dsn: str) -> None:
    """Handle orders and reminders until standard input ends."""
    engine = create_async_engine(dsn)
    client = OutboxClient(engine, outbox, dlq_table=outbox_dlq)

    async def handle(claim: Claim) -> Outcome:
        body = json.loads(claim.payload)  # the poison order fails here, at each attempt
        if body["is_flaky"] and claim.attempts_count == 0:
            message = "the printer is out of paper"
            raise RuntimeError(message)
        async with AsyncSession(engine) as session, session.begin():
            receipt = {
                "order_id": claim.headers["order"],
                "queue": claim.queue,
                "worker": name,
                "attempt": claim.attempts_count + 1,
                "delivery": claim.deliveries_count,
                "due_at": claim.next_attempt_at,
            }
            await session.execute(insert(receipts).values(receipt))
            await asyncio.sleep(WORK_SECONDS)
            await client.settle_within(session, claim)
        return SETTLED

    worker = Worker(
        engine,
        outbox,
        ["orders", "reminders"],
        handle,
        client=client,
        name=name,
        max_workers=HANDLERS,
        lease_ttl_seconds=LEASE_SECONDS,
        retry_strategy=RETRIES,
        graceful_timeout=2.0,
    )
    await worker.start()
    await end_of_input()
    await worker.stop()
    await engine.dispose()


async def end_of_input() -> None:
    """Wait until whoever started this process closes its standard input, or is gone."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    asyncio.run(run(*sys.argv[1:]))
