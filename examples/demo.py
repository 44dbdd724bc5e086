"""See it work: `python -m examples.demo`, on a machine that has nothing but Python.

Starts a private PostgreSQL, publishes orders in transactions of which some roll back, and handles
them in two worker processes. One of these is killed half-way and another takes its place. One order
is poison, one message is a timer. At the end every order is accounted for, or the exit code is 1.
Ctrl-C ends everything that was started.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from examples.demo_account import take_account
from examples.demo_crew import crew_of
from examples.demo_tables import metadata, orders, outbox, outbox_dlq, receipts
from faststream_outbox import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import OutboxClient
from faststream_outbox.testing.postgres import PostgresServer

ATTEMPTS = 360
REFUSED_EVERY = 6
COMMITTED = ATTEMPTS - ATTEMPTS // REFUSED_EVERY
POISON = 100
SECONDS_TO_PUBLISH = 2.0
SECONDS_TO_REMIND = 4
PATIENCE = 60.0

console = Console(highlight=False)


class PaymentRefused(Exception):
    """Raised inside a transaction, so that the order and its message vanish together."""


class Shop:
    """Takes orders: each is a row of the shop's own and a message, in one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.client = OutboxClient(engine, outbox, dlq_table=outbox_dlq)
        self.committed = 0
        self.rolled_back = 0
        self.flaky = 0

    async def take_orders(self) -> None:
        """Try them all; those whose payment is refused leave nothing behind."""
        for number in range(1, ATTEMPTS + 1):
            is_flaky = number % 10 == 3
            try:
                await self.take_order(number, is_flaky=is_flaky)
            except PaymentRefused:
                self.rolled_back += 1
            else:
                self.committed += 1
                self.flaky += is_flaky
            await asyncio.sleep(SECONDS_TO_PUBLISH / ATTEMPTS)

    async def take_order(self, number: int, *, is_flaky: bool) -> None:
        """One transaction: the row and its message exist after the commit, or neither does."""
        body = b"{ this is not JSON" if number == POISON else json.dumps({"is_flaky": is_flaky}).encode()
        message = Envelope(queue="orders", body=body, headers={"order": number})
        async with AsyncSession(self.engine) as session, session.begin():
            await session.execute(insert(orders).values(id=number, customer=f"customer {number % 7}", cents=999))
            await publish(session, outbox, message, wakeups=self.client.wakeups)
            if number == 1:
                await self.set_timer(session, number)
            if number % REFUSED_EVERY == 0:
                raise PaymentRefused(number)

    async def set_timer(self, session: AsyncSession, number: int) -> None:
        """A message that falls due later; its `timer_id` keeps a second one out."""
        reminder = Envelope(
            queue="reminders",
            body=json.dumps({"is_flaky": False}).encode(),
            headers={"order": number},
            activate_in=timedelta(seconds=SECONDS_TO_REMIND),
            timer_id=f"reminder-{number}",
        )
        await publish(session, outbox, reminder, wakeups=self.client.wakeups)

    async def handled(self) -> int:
        """Receipts for orders, so far."""
        query = select(func.count()).select_from(receipts).where(receipts.c.queue == "orders")
        async with self.engine.connect() as connection:
            return (await connection.execute(query)).scalar_one()

    async def has_handled(self, number: int) -> bool:
        """Whether there are so many receipts."""
        return await self.handled() >= number

    async def has_nothing_waiting(self) -> bool:
        """Whether the outbox is empty."""
        async with self.engine.connect() as connection:
            return (await connection.execute(select(func.count()).select_from(outbox))).scalar_one() == 0


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes: other processes write it, so there is no event to wait for."""
    while True:
        if await question():
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def shown(shop: Shop) -> AsyncGenerator[None]:
    """Bars that follow the tables while the block runs."""
    columns = TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        committed = progress.add_task("committed", total=COMMITTED)
        handled = progress.add_task("handled", total=COMMITTED - 1)

        async def follow() -> None:
            while True:
                progress.update(committed, completed=shop.committed)
                progress.update(handled, completed=await shop.handled())
                await asyncio.sleep(0.1)

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])
            progress.update(committed, completed=shop.committed)


async def play(shop: Shop, dsn: str) -> None:
    """Take orders while workers come, die and go, until the outbox is empty or patience ends."""
    async with (
        shown(shop),
        crew_of(dsn, console.print) as crew,
        asyncio.timeout(PATIENCE),
        asyncio.TaskGroup() as tasks,
    ):
        await crew.hire("worker 1")
        await crew.hire("worker 2")
        taking = tasks.create_task(shop.take_orders())
        await until(lambda: shop.has_handled(COMMITTED // 2))
        await crew.kill("worker 2")
        await crew.hire("worker 3")
        await taking
        console.print("the last order is taken; the killed worker's messages come back when their leases end")
        await until(shop.has_nothing_waiting)


async def run() -> bool:
    """Play it all; whether the account adds up."""
    console.print("starting a private PostgreSQL")
    with PostgresServer.start() as server:
        console.print(f"PostgreSQL runs at {server.dsn()}")
        engine = create_async_engine(server.dsn())
        shop = Shop(engine)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
            try:
                await play(shop, server.dsn())
            except TimeoutError:
                console.print(f"[red]still messages in the outbox after {PATIENCE:.0f} s")
            account = await take_account(engine, rolled_back=shop.rolled_back, expected_retried=shop.flaky)
        finally:
            await engine.dispose()
    console.print(account.table())
    for fault in account.faults():
        console.print(f"[red]{fault}")
    console.print("[red]It does not add up." if account.faults() else "[green]It adds up.")
    return not account.faults()


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(run()) else 1)
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        sys.exit(130)
