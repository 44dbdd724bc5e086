"""What an operator works with: a part for each table that there is, made when it is asked for, closed at the end."""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import pytest
from sqlalchemy import MetaData, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.operator import Kind, Operator
from faststream_outbox._internal.overview.overview import Overview
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.errors import InvalidOption, UnknownName
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import OutboxClient
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from tests.cases import each
from tests.dashboard.conftest import empty, place
from tests.dashboard.place import Place

__all__ = ["empty", "place"]

metadata = MetaData()
ALL: dict[str, Any] = {
    "table": make_outbox_table(metadata),
    "dlq_table": make_dlq_table(metadata),
    "log_tables": make_log_tables(metadata, "outbox_log"),
    "inbox_table": make_inbox_table(metadata),
}
PARTS = ("client", "dead_letters", "outbox", "overview")
Subset = tuple[str, ...]
SUBSETS: list[Subset] = [names for size in range(5) for names in combinations(ALL, size)]


class Missing(Exception):
    """What there is no table for."""


def operator(names: Iterable[str] = ALL, engine: AsyncEngine | None = None, **options: Any) -> Operator:
    """On a server that nobody can reach, unless there is another engine."""
    where = engine or create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    return Operator(where, Tables(**{name: ALL[name] for name in names}), missing=Missing, **options)


def of(place: Place, **options: Any) -> Operator:
    """On the tables of a test."""
    return Operator(place.engine, Tables(place.table, place.dlq_table, place.log_tables), missing=Missing, **options)


def misses(made: Operator, part: str) -> object:
    """The kind of table that a part lacks; None where it is there."""
    try:
        getattr(made, part)
    except Missing as missing:
        return missing.args[0]
    return None


@each("names", SUBSETS)
def test_a_part_is_there_if_its_tables_are(names: Subset) -> None:
    queues: Kind | None = None if "table" in names else "queues"
    letters: Kind | None = None if "dlq_table" in names else "dead letters"
    topics: Kind | None = None if "log_tables" in names else "topics"
    made = operator(names)
    assert {part: misses(made, part) for part in (*PARTS, *ALL)} == {
        "client": queues,
        "dead_letters": letters or queues,
        "outbox": topics,
        "overview": queues if topics else None,
        "table": queues,
        "dlq_table": letters,
        "log_tables": topics,
        "inbox_table": None if "inbox_table" in names else "receipts",
    }


@each("part", PARTS)
def test_a_part_is_made_once(part: str) -> None:
    made = operator()
    assert getattr(made, part) is getattr(made, part)


def test_tables_are_looked_at_before_anything_is_asked() -> None:
    with pytest.raises(InvalidOption, match="a table of dead letters"):
        Operator(operator().engine, Tables(table=ALL["dlq_table"]), missing=Missing)


async def test_nothing_is_connected_before_it_is_asked(place: Place) -> None:
    opened: list[object] = []
    event.listen(place.engine.sync_engine, "connect", lambda *_: opened.append(1))
    await place.engine.dispose()
    made = of(place)
    for part in PARTS:
        getattr(made, part)
    made.doctor()
    await made.close()
    assert opened == []


def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is closed from now on."""
    names: list[str] = []

    def noting(name: str) -> Callable[[object], Any]:
        async def note(_: object) -> None:
            names.append(name)

        return note

    monkeypatch.setattr(Wakeups, "close", noting("client"))
    monkeypatch.setattr(Outbox, "cleanup", noting("outbox"))
    monkeypatch.setattr(Overview, "close", noting("overview"))
    return names


async def test_what_was_made_is_closed_in_reverse_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    names = closed(monkeypatch)
    for parts in ((), ("outbox",), ("client", "overview"), ("overview", "client", "outbox")):
        names.clear()
        made = operator()
        for part in parts:
            getattr(made, part)
        await made.close()
        assert names == list(reversed(parts))


async def test_at_rest_the_client_goes_on_announcing(monkeypatch: pytest.MonkeyPatch) -> None:
    names, made = closed(monkeypatch), operator()
    for part in PARTS:
        getattr(made, part)
    await made.rest()
    assert names == ["overview", "outbox"]


async def test_a_question_after_the_rest_opens_the_connection_again(place: Place) -> None:
    made = of(place)
    for close in (made.rest, made.close, made.close):
        assert [each.queue for each in await made.overview.queues()] == [place.words.queue]
        assert [each.group for each in await made.outbox.groups.list()] == [place.words.group]
        await close()


class Broker:
    """As much of a broker as is asked."""

    def __init__(self, client: OutboxClient) -> None:
        self.client = client
        self.asked: list[tuple[object, ...]] = []

    async def pause(self, queue: str, *, create: bool) -> bool:
        self.asked.append(("pause", queue, create))
        return True

    async def resume(self, queue: str) -> bool:
        self.asked.append(("resume", queue))
        return True


async def test_a_broker_is_asked_because_it_knows_more_queues() -> None:
    broker = Broker(operator().client)
    made = operator(broker=broker)
    assert [await made.pause("orders", create=True), await made.resume("orders")] == [True, True]
    assert broker.asked == [("pause", "orders", True), ("resume", "orders")]


async def test_the_client_of_a_broker_is_used_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    names, broker = closed(monkeypatch), Broker(operator().client)
    made = operator(broker=broker)
    assert made.client is broker.client
    await made.close()
    assert names == []


async def test_a_queue_is_paused_and_resumed(place: Place) -> None:
    made, queue = of(place), place.words.queue
    assert [await made.pause(queue), await made.pause(queue), await place.paused()] == [True, False, [queue]]
    assert [await made.resume(queue), await made.resume(queue), await place.paused()] == [True, False, []]
    await made.close()


async def test_a_queue_that_nobody_knows_is_paused_if_that_is_meant(place: Place) -> None:
    made = of(place)
    with pytest.raises(UnknownName):
        await made.pause("to come")
    assert await made.pause("to come", create=True)
    await made.close()


async def test_a_timer_is_taken_back_once(place: Place) -> None:
    made, said = of(place), place.words
    assert [await made.cancel_timer(said.queue, said.timer_id) for _ in range(2)] == [True, False]
    await made.close()


async def test_a_group_is_put_elsewhere_or_made(place: Place) -> None:
    made, said = of(place), place.words
    (before,) = await made.outbox.groups.list(said.group)
    assert await made.seek("earliest", said.group, said.uri) == (0, 0)
    (after,) = await made.outbox.groups.list(said.group)
    assert after.messages > before.messages
    with pytest.raises(UnknownName):
        await made.seek("earliest", "new", said.uri)
    await made.seek("earliest", "new", said.uri, create=True)
    await made.close()


async def test_the_doctor_examines_the_same_tables(place: Place) -> None:
    findings = await of(place).doctor().examine(only=["schema"])
    assert [(each.check, each.severity) for each in findings] == [("schema", "ok")]
