"""A log with its tables, clients as other processes would have them, writers, and looks into the tables."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome, Retry
from faststream_outbox.events import Events
from faststream_outbox.log import Cursor, Outbox, OutboxMessage, Token
from tests.log.opened import opened
from tests.waiting import eventually

Row = Mapping[str, Any]


class Writer:
    """A transaction of its own that publishes."""

    def __init__(self, outbox: Outbox, connection: AsyncConnection) -> None:
        self._outbox = outbox
        self.connection = connection

    async def publish(self, uri: str, *payloads: Any) -> tuple[int, ...]:
        """Publish in the open transaction; the positions."""
        token = await self._outbox.publish(self.connection, *[OutboxMessage(uri, payload) for payload in payloads])
        return token.positions

    async def execute(self, statement: str) -> None:
        """Run a statement in the open transaction."""
        await self.connection.execute(text(statement))

    async def xid(self) -> int:
        """The transaction's own number; given now, if not before."""
        return int((await self.connection.execute(text("select pg_current_xact_id()::text"))).scalar_one())

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        """Give the connection back before the test ends, where many writers come after one another."""
        await self.connection.close()


class LogRig:
    """Everything that a test does with one log."""

    def __init__(self, outbox: Outbox, stack: AsyncExitStack) -> None:
        self.outbox = outbox
        self.engine: AsyncEngine = outbox.engine
        self.heard: list[Any] = []
        outbox.events.subscribe(self.heard.append)
        self._stack = stack

    @classmethod
    @asynccontextmanager
    async def made(cls, engine: AsyncEngine, **options: Any) -> AsyncGenerator["LogRig", None]:
        async with opened(engine, events=Events(), **options) as outbox, AsyncExitStack() as stack:
            yield cls(outbox, stack)

    def reported(self, kind: type[Any]) -> list[Any]:
        """Events of one type, so far."""
        return [event for event in self.heard if type(event) is kind]

    async def another(self, **options: Any) -> Outbox:
        """The same log as another process has it; settings as of the first, unless given."""
        settings = {"events": Events(), **options}
        outbox = Outbox(settings.pop("engine", self.engine), tables=self.outbox.tables, **settings)
        outbox.events.subscribe(self.heard.append)
        self._stack.push_async_callback(outbox.cleanup)
        return outbox

    async def writer(self, engine: AsyncEngine | None = None) -> Writer:
        """A transaction that is open until the test ends it."""
        connection = await self._stack.enter_async_context((engine or self.engine).connect())
        return Writer(self.outbox, connection)

    async def reader(
        self,
        group: str = "g",
        uri: str = "",
        *,
        fixed: tuple[int, int] | None = None,
        outbox: Outbox | None = None,
        **options: Any,
    ) -> Reader:
        """A member of a group, to be driven by hand."""
        return Reader.of((outbox or self.outbox).client, Group(group, uri), ReadOptions(**options), fixed=fixed)

    async def renew(self, *readers: Reader) -> None:
        """Renew what these hold, as the client does by itself."""
        await self.outbox.client.renewing.renew([reader.member for reader in readers])

    async def put(self, uri: str, *payloads: Any, **metadata: Any) -> Token:
        """Publish and commit."""
        async with AsyncSession(self.engine) as session, session.begin():
            return await self.outbox.publish(session, *[OutboxMessage(uri, one, dict(metadata)) for one in payloads])

    async def put_apart(self, uri: str, *payloads: Any, outbox: Outbox | None = None) -> None:
        """Publish each in a tick of its own, which another process makes if one is given."""
        for payload in payloads:
            await self.put(uri, payload)
            await self.sequence(outbox)

    async def put_all(self, uris: Iterable[str], *payloads: Any) -> None:
        """Publish each under all of the URIs, in a transaction of its own."""
        for payload in payloads:
            async with AsyncSession(self.engine) as session, session.begin():
                await self.outbox.publish(session, *[OutboxMessage(uri, payload) for uri in uris])

    async def seek(self, place: Any, group: str = "g", uri: str = "") -> Cursor:
        """Put a group elsewhere, and make it where there is none; committed."""
        async with AsyncSession(self.engine) as session, session.begin():
            return await self.outbox.seek(session, place, group, uri, create=True)

    async def sequence(self, outbox: Outbox | None = None) -> None:
        """Make ticks of all that is visible."""
        await (outbox or self.outbox).client.sequencer.catch_up()

    async def tick(self, outbox: Outbox | None = None) -> int | None:
        """Make one tick."""
        return await (outbox or self.outbox).client.sequencer.tick()

    def filled(self, statement: str) -> str:
        """A statement with the names of the tables."""
        for place, name in self.outbox.client.names.places().items():
            statement = statement.replace(f"{{{place}}}", name)
        return statement

    async def ask(self, statement: str, **values: Any) -> Sequence[Row]:
        """Rows of a statement, committed; `{log}`, `{ticks}` and the like stand for the tables."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(self.filled(statement)), values)
            return [dict(row) for row in result.mappings()] if result.returns_rows else []

    async def gaps(self) -> list[tuple[int, int]]:
        """Numbers that are drawn and not seen, as ranges."""
        return [(row["lo"], row["hi"]) for row in await self.ask("select lo, hi from {gaps} order by lo")]

    async def forget_gaps(self) -> None:
        """Tick until no gap is left; other transactions of the cluster, of other tests too, delay that."""

        async def is_forgotten() -> bool:
            await self.tick()
            return not await self.gaps()

        await eventually(is_forgotten)

    async def order(self) -> list[tuple[int, int]]:
        """Every position that is in a tick: (tick, position), in the order of the log."""
        rows = await self.ask(
            "select t.tick, p.position from {ticks} t, unnest(t.lows, t.highs) r (lo, hi), "
            "generate_series(r.lo, r.hi) p (position) order by 1, 2"
        )
        return [(row["tick"], row["position"]) for row in rows]

    async def ticked(self) -> list[int]:
        """Positions in the order of the log."""
        return [position for _, position in await self.order()]

    async def committed(self) -> list[int]:
        """Positions that are visible, in order."""
        return [row["position"] for row in await self.ask("select position from {log} order by position")]

    async def spans(self, group: str = "g", uri: str = "") -> list[Row]:
        """The spans of a group."""
        statement = "select * from {offsets} where consumer_group = :group and uri = :uri order by lo"
        return list(await self.ask(statement, group=group, uri=uri))

    async def deferrals(self, group: str = "g") -> list[Row]:
        """What a group has deferred, in order."""
        statement = "select * from {deferred} where consumer_group = :group order by tick, position"
        return list(await self.ask(statement, group=group))

    async def blocked_by(self, connection: AsyncConnection) -> bool:
        """Whether anybody waits for this connection's transaction."""
        pid = (await connection.execute(text("select pg_backend_pid()"))).scalar_one()
        waiting = await self.ask(
            "select 1 from pg_stat_activity where cast(:pid as int) = any (pg_blocking_pids(pid))", pid=pid
        )
        return bool(waiting)


async def in_hand(reader: Reader) -> BatchRun:
    """The reader's next batch, to be run."""
    batch = await reader.next_batch()
    assert batch is not None
    return BatchRun(reader.member, reader.settler, batch)


async def succeed(_: object) -> Outcome:
    return DONE


async def fail(_: object) -> Outcome:
    """Once, and not to be tried again within the test."""
    return Retry(3600.0)


def covers(spans: Sequence[Row]) -> bool:
    """Whether spans are every slot exactly once."""
    slots = [slot for span in spans for slot in range(span["lo"], span["hi"] + 1)]
    return sorted(slots) == list(range(256))


async def gathered(*running: Any) -> list[Any]:
    """Wait for all of them at once."""
    return list(await asyncio.gather(*running))
