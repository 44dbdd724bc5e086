"""The janitor takes turns with those of other processes, and a chore that fails disturbs nobody."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, Retention, events, make_outbox_table
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.janitor import Chore, Janitor, purge_in_slices
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import OutboxClient
from tests.waiting import eventually

LOCK = statements("retention", LogNames.of(make_log_tables(MetaData())))["lock_janitor"]


@pytest.mark.parametrize(
    "wrong",
    [{"messages": timedelta(-1)}, {"every": timedelta(0)}, {"group_expires_after": timedelta(0)}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_time_that_is_none_is_refused(wrong: dict[str, timedelta]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        Retention(**wrong)
    with pytest.raises(InvalidOptionType, match="timedelta"):
        Retention(messages=7)  # type: ignore[arg-type]


def test_policy_for_what_is_not_there_is_refused(engine: AsyncEngine) -> None:
    table = make_outbox_table(MetaData())
    with pytest.raises(InvalidOption, match="dlq_table"):
        OutboxClient(engine, table, retention=Retention(dead_letters=timedelta(days=1)))
    with pytest.raises(InvalidOption, match="log_tables"):
        OutboxBroker(engine, outbox_table=table, dlq_table=None, retention=Retention(messages=timedelta(days=1)))
    with pytest.raises(InvalidOption, match="queues"):
        Outbox(engine, retention=Retention(dead_letters=timedelta(days=1)))
    with pytest.raises(InvalidOptionType, match="Retention"):
        Outbox(engine, retention=timedelta(days=1))  # type: ignore[arg-type]


class Household:
    """Janitors on one lock, as processes have them, and what their chores did."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.done: list[str] = []
        self.failed: list[events.ChoreFailed] = []
        self.events = Events()
        self.events.subscribe(self.failed.append, events.ChoreFailed)

    def janitor(self, *chores: Chore, every: float = 3600.0) -> Janitor:
        async def close() -> None:
            self.done.append("closed")

        return Janitor(
            DedicatedConnection(self.engine), (LOCK, "household"), chores, self.events, every=every, close=close
        )

    def chore(self, name: str, error: Exception | None = None) -> Chore:
        async def work() -> None:
            self.done.append(name)
            if error is not None:
                raise error

        return Chore(name, work)


@pytest.fixture
def household(driver_engine: AsyncEngine) -> Household:
    return Household(driver_engine)


async def test_another_process_is_not_waited_for(household: Household) -> None:
    entered, may_leave = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        entered.set()
        await may_leave.wait()

    first = asyncio.create_task(household.janitor(Chore("long", work)).round())
    await entered.wait()
    second = household.janitor(household.chore("second"))
    await second.round()
    assert household.done == []
    may_leave.set()
    await first

    async def gets_its_turn() -> bool:
        await second.round()
        return "second" in household.done

    await eventually(gets_its_turn)


async def test_turn_holds_neither_a_snapshot_nor_a_number(household: Household) -> None:
    found: list[Any] = []

    async def look() -> None:
        async with household.engine.connect() as connection:
            asked = (
                "select a.state, a.backend_xmin, a.backend_xid from pg_stat_activity a join pg_locks l using (pid) "
                "where l.locktype = 'advisory' and a.datname = current_database()"
            )
            found.extend((await connection.execute(text(asked))).all())

    await household.janitor(Chore("look", look)).round()
    assert found == [("idle in transaction", None, None)]


async def test_chore_that_fails_is_told_and_delays_no_other(household: Household) -> None:
    janitor = household.janitor(household.chore("bad", ValueError("no")), household.chore("good"))
    await janitor.round()
    await janitor.round()
    assert household.done == ["bad", "good", "closed", "good", "closed"]
    assert [(each.chore, each.retry_seconds) for each in household.failed] == [("bad", 3600.0)]


async def test_pauses_after_failures_grow_up_to_a_bound(household: Household) -> None:
    chore = household.chore("bad", ValueError("no"))
    janitor = household.janitor(chore, every=60.0)
    for _ in range(8):
        await janitor.round()
        chore.again_at = float("-inf")
    assert [each.retry_seconds for each in household.failed] == [60, 120, 240, 480, 960, 1920, 3600, 3600]


async def test_database_that_does_not_answer_is_told_and_tried_again(engine: AsyncEngine) -> None:
    household = Household(engine)
    janitor = household.janitor(household.chore("work"), every=0.01)
    janitor._guard.timeout = 0.0
    running = asyncio.create_task(janitor.run())
    await eventually(lambda: len(household.failed) >= 2)
    assert household.failed[0].chore == "taking turns"
    running.cancel()
    await asyncio.wait([running])


async def test_nothing_runs_without_a_policy(engine: AsyncEngine, table: Table, dlq_table: Table) -> None:
    clients = [Outbox(engine).client, OutboxClient(engine, table, dlq_table=dlq_table)]
    names = [service.name for client in clients for service in client._services]
    assert not [name for name in names if "janitor" in name]


@pytest.mark.parametrize(
    ("slices", "gone", "told"),
    [([(0, None)], 0, [0]), ([(2, 7), (2, 9), (1, None)], 5, [2, 4, 5]), ([(2, 7), (0, None)], 2, [2, 2])],
    ids=["nothing", "more each time", "all were in the last but one"],
)
async def test_slices_go_on_where_the_last_one_ended(
    slices: list[tuple[int, int | None]], gone: int, told: list[int]
) -> None:
    begun: list[int | None] = []
    progress: list[int] = []

    async def purge(after: int | None) -> tuple[int, int | None]:
        begun.append(after)
        return slices[len(begun) - 1]

    assert await purge_in_slices(purge, progress.append) == gone
    assert begun == [None, *(after for _, after in slices[:-1])]
    assert progress == told
