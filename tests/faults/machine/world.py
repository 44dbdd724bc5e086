"""Everything that a fleet under test runs on: PostgreSQL with a standby, PgBouncer, NATS, and the lines between.

`World.standing(...)` starts it and takes it down. The addresses that it gives to children stay the same for its
whole life: a proxy stands in front of each server and is pointed elsewhere when the primary changes. PgBouncer
reaches PostgreSQL through the same proxy, so that a failover and a bad line concern its clients too.

What breaks it on purpose is in `strikes`; this file only has what can be restarted, exchanged, and asked.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import psycopg
from sqlalchemy import make_url

from tests.faults.machine.pair import APPLICATION, Ending, Pair
from tests.faults.proxy import Proxy, proxy_to
from tests.pgbouncer.pooler import Pooler, pooled
from tests.servers.nats_server import NatsServer
from tests.servers.programs import pgbouncer

POOLER_SERVERS = 20
"""Connections that PgBouncer has to PostgreSQL at most."""

OUTBOX = "outbox"
DEAD_LETTERS = "outbox_dlq"
LOG = "outbox_log"
"""Tables that strikes aim at, where they exist; whoever has the children makes them."""


LEASE_SECONDS = 2.0


class History(Protocol):
    """Who is told of every fault, when it begins and when it is over, and of what could not be done."""

    def struck(self, kind: str, detail: str, **more: Any) -> None: ...

    def healed(self, kind: str) -> None: ...

    def calm(self) -> None: ...

    def missed(self, kind: str, why: BaseException) -> None: ...

    def failed(self, what: str, error: BaseException) -> None: ...


class Silence:
    """A history that nobody keeps."""

    def struck(self, kind: str, detail: str, **more: Any) -> None: ...

    def healed(self, kind: str) -> None: ...

    def calm(self) -> None: ...

    def missed(self, kind: str, why: BaseException) -> None: ...

    def failed(self, what: str, error: BaseException) -> None: ...


class World:
    """The servers and lines of one run."""

    def __init__(self, seed: int, pair: Pair, line: Proxy) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.pair = pair
        self.line = line
        """Between everybody and PostgreSQL."""
        self.pooler: Pooler | None = None
        self.nats_server: NatsServer | None = None
        self.nats_line: Proxy | None = None
        """Between everybody and NATS."""
        self.history: History = Silence()
        """Give it yours before the first strike."""
        self.lease_seconds = LEASE_SECONDS
        """The leases of the children; give it theirs."""
        self._changing = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def standing(
        cls,
        seed: int,
        *,
        standby: bool,
        pooler: bool,
        nats: bool,
        settings: dict[str, str] | None = None,
    ) -> AsyncIterator[Self]:
        """A world for the length of the block; `settings` are PostgreSQL's."""
        if pooler:
            # NATS asks later, for itself: its skip would come before the fault of a PgBouncer that nobody asked for.
            pgbouncer()
        async with AsyncExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-world-")))
            directory.chmod(0o755)
            pair = await asyncio.to_thread(Pair.start, standby=standby, settings=settings)
            stack.push_async_callback(asyncio.to_thread, pair.stop)
            world = cls(seed, pair, await stack.enter_async_context(proxy_to(pair.primary.port)))
            if pooler:
                url = make_url(world.dsn)
                world.pooler = await stack.enter_async_context(pooled(url, directory, servers=POOLER_SERVERS))
            if nats:
                world.nats_server = NatsServer(directory / "nats")
                stack.callback(world.nats_server.kill)
                await world.nats_server.start()
                port = make_url(world.nats_server.url).port
                assert port is not None
                world.nats_line = await stack.enter_async_context(proxy_to(port))
            yield world

    @property
    def dsn(self) -> str:
        """The libpq address of the primary through the proxy, for children; the same for the whole run."""
        return f"postgresql://{APPLICATION}@127.0.0.1:{self.line.port}/{APPLICATION}"

    @property
    def pooled(self) -> str | None:
        """The same through PgBouncer in transaction mode."""
        return None if self.pooler is None else self.pooler.url.render_as_string(hide_password=False)

    @property
    def direct(self) -> str:
        """The present primary without a proxy, as the role of the children; another one after a failover."""
        return self.pair.application()

    @property
    def superuser(self) -> str:
        """The present primary without a proxy, for those who may do everything; connections are kept for them."""
        return self.pair.superuser()

    @property
    def nats(self) -> str | None:
        """NATS through a proxy."""
        return None if self.nats_line is None else f"nats://127.0.0.1:{self.nats_line.port}"

    async def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the present primary, asked as superuser; `%s` stands for a value."""
        async with await psycopg.AsyncConnection.connect(self.superuser, autocommit=True) as connection:
            found = await connection.execute(question.encode(), values or None)
            return await found.fetchall() if found.description is not None else []

    async def has(self, table: str) -> bool:
        """Whether there is such a table."""
        return bool((await self.ask("select to_regclass(%s) is not null", table))[0][0])

    async def tables(self) -> list[str]:
        """The tables of the package, and whatever else is named like them."""
        question = "select tablename from pg_tables where schemaname = 'public' and tablename ~ '^outbox' order by 1"
        return [name for (name,) in await self.ask(question)]

    @contextmanager
    def fault(self, kind: str, detail: str, **more: Any) -> Iterator[None]:
        """Tell the history that something is broken for the length of the block."""
        self.history.struck(kind, detail, **more)
        try:
            yield
        finally:
            self.history.healed(kind)

    async def restart(self, how: Ending, down: float = 0.0) -> None:
        """End the primary as `how` says, start it again after so many seconds, and wait until it is followed."""
        async with self._changing:
            await asyncio.to_thread(self.pair.restart, how, down)
            await asyncio.to_thread(self.pair.is_followed)

    async def fail_over(self, how: Ending = "immediate") -> None:
        """End the primary for good, let the standby take its place, and make a new standby.

        Nothing that was acknowledged is lost. Connections that the proxy has still go to the server that is gone:
        they are reset, and the next ones reach the new primary.
        """
        async with self._changing:
            await asyncio.to_thread(self.pair.fail_over, how)
            self.line.target = self.pair.primary.port
            self.line.cut()
            await asyncio.to_thread(self.pair.follow)

    async def restart_pooler(self, down: float = 0.0) -> None:
        """End PgBouncer with everybody connected to it, and start it again after so many seconds."""
        assert self.pooler is not None, "no PgBouncer in this world"
        async with self._changing:
            await self.pooler.stop()
            try:
                await asyncio.sleep(down)
            finally:
                await self.pooler.start()

    async def stop_nats(self) -> None:
        """Kill NATS. Its streams stay on disk."""
        assert self.nats_server is not None, "no NATS in this world"
        await asyncio.to_thread(self.nats_server.kill)

    async def start_nats(self) -> None:
        """Start NATS again under the same address."""
        assert self.nats_server is not None, "no NATS in this world"
        await self.nats_server.start()
