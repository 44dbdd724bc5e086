"""The notifier gathers hints, sends few NOTIFYs, and never troubles the publisher."""

import asyncio
from unittest.mock import ANY

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.events.types import StatementFailed, StatementWorks
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.wakeup.hint import Hint, Notice, parsed
from faststream_outbox._internal.wakeup.wakeups import Notifier, Wakeups
from faststream_outbox.errors import InvalidOption
from faststream_outbox.events import Event, Events
from faststream_outbox.publish import publish
from tests.waiting import eventually
from tests.wakeup.conftest import Channel


class Post:
    """Takes payloads as slowly as it is told to."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.tries: list[float] = []

    async def send(self, notice: Notice) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.payloads.append(notice.payload)

    @property
    def hints(self) -> list[list[Hint]]:
        return [parsed(payload)[1] for payload in self.payloads]


async def test_hints_that_come_while_one_is_on_its_way_leave_together() -> None:
    post = Post()
    notifier = Notifier(post.send, Events(), "me")
    post.open.clear()
    notifier.push(Hint("a", count=1))
    await asyncio.sleep(0)
    for _ in range(100):
        notifier.push(Hint("a", count=1))
        notifier.push(Hint("b", count=1))
    post.open.set()
    await notifier.flush()
    told = [("me", [Hint("a", count=1)]), ("me", [Hint("a", count=100), Hint("b", count=100)])]
    assert [parsed(payload) for payload in post.payloads] == told


async def test_hints_that_come_within_the_interval_leave_together() -> None:
    post = Post()
    notifier = Notifier(post.send, Events(), "me", interval=0.2)
    notifier.push(Hint("a", count=1))
    await eventually(lambda: post.payloads)
    for _ in range(10):
        notifier.push(Hint("a", count=1))
        await asyncio.sleep(0.001)
    await notifier.flush()
    assert post.hints == [[Hint("a", count=1)], [Hint("a", count=10)]]


class Kept:
    """A connection that says goodbye for as long as it is told to."""

    def __init__(self) -> None:
        self.is_open = True
        self.closing = asyncio.Event()
        self.let_go = asyncio.Event()

    async def close(self) -> None:
        self.is_open = False
        self.closing.set()
        await self.let_go.wait()


async def test_hint_that_comes_while_the_connection_is_closed_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.wakeup.wakeups.KEEP_SECONDS", 0.0)
    post, kept = Post(), Kept()
    notifier = Notifier(post.send, Events(), "me", kept=kept)  # type: ignore[arg-type]
    notifier.push(Hint("a", count=1))
    await kept.closing.wait()
    notifier.push(Hint("b", count=1))
    kept.let_go.set()
    await eventually(lambda: post.hints == [[Hint("a", count=1)], [Hint("b", count=1)]])


@pytest.mark.slow
async def test_a_channel_that_takes_nothing_is_told_once_and_asked_seldom() -> None:
    """As when the server's queue of notifications is full."""
    post, events, reported = Post(), Events(), list[Event]()
    events.subscribe(reported.append)
    post.error = OSError("too many notifications in the NOTIFY queue")
    notifier = Notifier(post.send, events, "me")
    for number in range(4):
        notifier.push(Hint("orders"))
        await eventually(lambda expected=number: len(post.tries) > expected)
    assert post.tries[-1] - post.tries[0] >= (0.05 + 0.1 + 0.2) / 2
    failed, post.error = post.error, None
    notifier.push(Hint("mails"))
    await eventually(lambda: post.hints == [[Hint("mails")]])
    await eventually(lambda: len(reported) == 2)
    assert reported == [StatementFailed("notify", failed), StatementWorks("notify", ANY)]


async def test_two_hundred_hints_are_few_notifications(
    driver_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    wakeups = Wakeups(driver_engine, Names.of(table), Events())
    for _ in range(200):
        wakeups.tell(Hint("orders", count=1))
    await wakeups.notifier(asyncio.get_running_loop()).flush()
    heard = [parsed(payload)[1] for payload in channel.heard()]
    assert len(heard) <= 2
    assert sum(hint.count for hints in heard for hint in hints) == 200


async def test_publisher_commits_though_nobody_can_be_notified(engine: AsyncEngine, table: Table) -> None:
    events, reported = Events(), []
    events.subscribe(reported.append, StatementFailed)
    nowhere = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing")
    wakeups = Wakeups(nowhere, Names.of(table), events)
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, Envelope(queue="orders", body=b""), wakeups=wakeups)
    await wakeups.notifier(asyncio.get_running_loop()).flush()
    assert [one.role for one in reported] == ["notify"]
    async with engine.connect() as connection:
        assert len((await connection.execute(table.select())).all()) == 1


@pytest.mark.slow
async def test_process_that_only_publishes_gives_its_connection_back(driver_engine: AsyncEngine, table: Table) -> None:
    wakeups = Wakeups(driver_engine, Names.of(table), Events())
    wakeups.tell(Hint("orders"))
    await wakeups.notifier(asyncio.get_running_loop()).flush()
    assert driver_engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_unknown_mode_is_refused(engine: AsyncEngine, table: Table) -> None:
    with pytest.raises(InvalidOption, match="after_commit"):
        Wakeups(engine, Names.of(table), Events(), "sometimes")  # type: ignore[arg-type]
