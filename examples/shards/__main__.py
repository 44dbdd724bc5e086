"""See it work: `python -m examples.shards`, on a machine that has nothing but Python.

Starts two private PostgreSQL servers and one application with a broker for each. Customers place orders, each in
the shard that its name belongs to. Half-way the first server is ended as by a power cut. Its customers ask again and
again; the second shard takes and handles all that is left of its own meanwhile. Then the first server comes back. At
the end every order of both shards is accounted for, or the exit code is 1. Ctrl-C ends everything that was started.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from rich.console import Console
from rich.markup import escape

from examples.shards.account import is_idle, receipts, table, take_account
from examples.shards.app import HANDLERS, make_app
from examples.shards.customers import Customers
from examples.shards.models import Base
from examples.shards.shards import Shard, open_shard
from faststream_outbox.testing.postgres import PostgresServer

NAMES = "shard 1", "shard 2"
PATIENCE = 200.0

console = Console(highlight=False, soft_wrap=True)


class Aloud(logging.Handler):
    """Says what goes wrong, in one line each and without tracebacks: that a server is gone is no news here."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        first = record.getMessage().splitlines()[0]
        console.print(f"[dim]{escape(f'{record.name}: {first[:110]}')}[/]")


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes: nobody tells when a table is empty."""
    while True:
        if await question():
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def opened(servers: Sequence[PostgresServer]) -> AsyncGenerator[list[Shard]]:
    """The shards on these servers, with their tables, and the application at work."""
    shards = [open_shard(name, server.dsn(), handlers=HANDLERS) for name, server in zip(NAMES, servers, strict=True)]
    try:
        for shard in shards:
            async with shard.engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
        app = make_app(shards)
        await app.start()
        try:
            yield shards
        finally:
            await app.stop()
    finally:
        for shard in shards:
            await shard.engine.dispose()


async def play(servers: Sequence[PostgresServer], shards: Sequence[Shard], customers: Customers) -> None:
    """Take orders while one server dies and comes back, until both outboxes are empty."""
    (victim, other), server = shards, servers[0]

    async def is_half_placed() -> bool:
        return all(customers.placed[shard.name] * 2 >= customers.wanted(shard) for shard in shards)

    async def is_done_elsewhere() -> bool:
        return customers.placed[other.name] == customers.wanted(other) and await is_idle(other)

    async with asyncio.TaskGroup() as tasks:
        ordering = tasks.create_task(customers.place_orders())
        await until(is_half_placed)
        handled = await receipts(other)
        await asyncio.to_thread(server.crash)
        console.print(f"[red]the server of {victim.name} is dead[/], in the middle of it all")
        await until(is_done_elsewhere)
        handled = await receipts(other) - handled
        console.print(f"[green]{other.name} goes on[/]: it has handled {handled} orders since, and has none left")
        await asyncio.to_thread(server.restart)
        console.print(f"the server of {victim.name} is back")
        await ordering
        for shard in shards:
            await until(partial(is_idle, shard))


async def run() -> bool:
    """Play it all; whether the accounts add up."""
    playing = asyncio.current_task()
    assert playing is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    async with AsyncExitStack() as stack:
        console.print("starting two private PostgreSQL servers")
        servers = [stack.enter_context(PostgresServer.start()) for _ in NAMES]
        shards = await stack.enter_async_context(opened(servers))
        customers = Customers(shards)
        for shard in shards:
            console.print(f"{shard.name} will take {customers.wanted(shard)} orders at {shard.engine.url}")
        try:
            async with asyncio.timeout(PATIENCE):
                await play(servers, shards, customers)
        except TimeoutError:
            console.print(f"[red]not done after {PATIENCE:.0f} s")
            return False
        accounts = [await take_account(shard, customers) for shard in shards]
    console.print(table(accounts))
    faults = [fault for account in accounts for fault in account.faults()]
    for fault in faults:
        console.print(f"[red]{fault}")
    console.print("[red]It does not add up." if faults else "[green]It adds up.")
    return not faults


def main() -> int:
    """Run, and say by the exit code whether it added up."""
    for name in ("shards", "faststream_outbox"):
        logging.getLogger(name).addHandler(Aloud(logging.WARNING))
    try:
        return 0 if asyncio.run(run()) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("stopped; nothing is left running")
        return 130


if __name__ == "__main__":
    sys.exit(main())
