"""The model of ticks does what PostgreSQL does: ways through it, taken for real, lead to the same tables."""

from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.log.ordering import sequencer
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.statements import statements
from tests.log.rig import LogRig
from tests.models.explorer import walk
from tests.models.tick_model import Log, TickModel

pytestmark = pytest.mark.slow

WALKS = 12
LENGTH = 150
SELDOM = ("crash", "commit", "roll back")
"""So that transactions overlap."""


class Replay:
    """A log, with a connection for each actor."""

    def __init__(self, dsn: str, names: LogNames, place: str, stack: ExitStack) -> None:
        self._dsn, self._stack = dsn, stack
        self._actors: dict[str, psycopg.Connection[Any]] = {}
        self._names = names
        self._sql = statements("tick", names, "log")
        self._place = place

    def _ask(self, who: str, statement: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if who not in self._actors:
            self._actors[who] = self._stack.enter_context(psycopg.connect(self._dsn))
        return self._actors[who].execute(statement.encode(), values).fetchall()

    def _named(self, who: str, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._ask(who, self._sql[name].pyformat, values)

    def step(self, name: str) -> None:
        """Do for real what the step's name says."""
        who, what = name.split(": ")
        match what:
            case "xid":
                self._ask(who, "select pg_current_xact_id()")
            case "draw":
                message = {"uri": "x://a", "slot": 0, "payload": "1", "body": None, "metadata": "{}", "event_id": None}
                self._named(who, "append_one", **message)
            case "lock":
                assert self._named(who, "lock_head"), "nobody else ticks"
            case "owners":
                self._named(who, "owners")
            case "snapshot":
                # The statement's snapshot and its writes cannot be parted from outside: the next step is the commit.
                limits = {"limit": sequencer.TICK_LIMIT, "islands": sequencer.ISLAND_LIMIT}
                limits |= {"ranges": sequencer.RANGE_LIMIT, "sweep": sequencer.SWEEP_LIMIT}
                assert self._named(who, "tick", **limits, channel="nobody", place=self._place)
            case "commit":
                self._actors[who].commit()
            case _:
                assert what in ("roll back", "crash")
                self._actors[who].rollback()

    def look(self) -> tuple[tuple[int, ...], int, frozenset[int], frozenset[int]]:
        """The order, how far it goes, the gaps that the last tick has found, and those that have a bound."""
        places = self._names.places()
        flat = "unnest({0}.lows, {0}.highs) r (lo, hi), generate_series(r.lo, r.hi) p (at)"
        rows = self._ask("observer", f"select p.at from {places['ticks']} t, {flat.format('t')} order by t.tick, p.at")
        ((high,),) = self._ask("observer", f"select high from {places['head']} h")
        found = self._ask("observer", f"select p.at from {places['head']} h, {flat.format('h')}")
        bounded = self._ask("observer", f"select p.at from {places['gap_table']} g, {flat.format('g')}")
        self._actors["observer"].commit()
        return tuple(at for (at,) in rows), high, _set(found), _set(bounded)


def _set(rows: list[tuple[Any, ...]]) -> frozenset[int]:
    return frozenset(at for (at,) in rows)


def seen(state: Log) -> tuple[tuple[int, ...], int, frozenset[int], frozenset[int]]:
    return state.order, state.head.high, state.head.gaps, frozenset(at for _, at in state.gaps)


def may(state: Log, name: str) -> bool:
    """Once the statement has begun it goes to its end."""
    return name == "ticker: commit" or all(ticker.phase != "reading" for ticker in state.tickers)


@pytest.fixture
def dsn(database_url: URL) -> str:
    return database_url.set(drivername="postgresql").render_as_string(hide_password=False)


async def follows(model: TickModel, engine: AsyncEngine, dsn: str, seed: int) -> list[str] | None:
    """Take a way through the model for real: the steps up to where the tables differ from it, or None."""
    async with LogRig.made(engine) as rig:
        # The first look makes the log's head.
        await rig.outbox.client.sequencer.progress()
        place = await rig.outbox.client.sequencer._where()
        with ExitStack() as stack:
            replay = Replay(dsn, rig.outbox.client.names, place, stack)
            taken: list[str] = []
            for name, state in walk(model, seed, LENGTH, may, SELDOM):
                taken.append(name)
                replay.step(name)
                if not name.endswith("snapshot") and replay.look() != seen(state):
                    return taken
    return None


@pytest.mark.parametrize("seed", range(WALKS))
async def test_a_way_through_the_model_taken_for_real(engine: AsyncEngine, dsn: str, seed: int) -> None:
    assert await follows(TickModel(writers=6, tickers=1), engine, dsn, seed) is None


async def test_a_model_with_a_mistake_is_found_out(engine: AsyncEngine, dsn: str) -> None:
    model = TickModel(writers=6, tickers=1, ignores_running=True)
    for seed in range(WALKS):
        if await follows(model, engine, dsn, seed) is not None:
            return
    pytest.fail("no way shows it")
