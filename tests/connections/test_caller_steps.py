"""Statements that are asked for one after the other: the same with an event loop and without, by every driver."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
from sqlalchemy import URL, Table

from faststream_outbox._internal.connections.caller import (
    CallerConnection,
    Steps,
    caller_connection,
    caller_connection_sync,
    run,
    run_sync,
)
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.sql.statements import Statement
from tests.publish.ways import WAYS, SyncWay, Way

T = TypeVar("T")
BROKEN = Statement("broken", "Fails.", "select 1/0", "select 1/0", ())


@pytest.fixture(params=WAYS)
async def way(request: pytest.FixtureRequest, database_url: URL, table: Table) -> AsyncIterator[Way]:
    async with WAYS[request.param](database_url, table) as way:
        await way.begin()
        yield way


async def opened_by(way: Way) -> CallerConnection:
    if isinstance(way, SyncWay):
        return caller_connection_sync(way.session, way.table)
    return await caller_connection(way.session, way.table)


async def made(way: Way, opened: CallerConnection, steps: Steps[T]) -> T:
    return run_sync(opened, steps) if isinstance(way, SyncWay) else await run(opened, steps)


def timer(opened: CallerConnection, timer_id: str) -> tuple[Statement, dict[str, Any]]:
    return opened.sql("publish", "cancel_timer"), {"queue": "orders", "timer_id": timer_id}


async def test_steps_get_the_rows_of_each_statement_and_end_with_their_answer(way: Way) -> None:
    for name in ("a", "b"):
        await way.publish(Envelope(queue="orders", body=b"", timer_id=name))
    opened = await opened_by(way)

    def cancelling() -> Steps[list[int]]:
        found = []
        for name in ("a", "c", "b"):
            found.append(len((yield timer(opened, name))))
        return found

    assert await made(way, opened, cancelling()) == [1, 0, 1]


async def test_steps_that_ask_for_nothing_have_an_answer(way: Way) -> None:
    def nothing() -> Steps[str]:
        yield from ()
        return "nothing"

    assert await made(way, await opened_by(way), nothing()) == "nothing"


async def test_an_error_is_thrown_in_where_its_statement_was_asked_for(way: Way) -> None:
    opened = await opened_by(way)
    seen: list[str] = []

    def failing() -> Steps[None]:
        try:
            yield timer(opened, "a")
            seen.append("first")
            try:
                yield BROKEN, {}
            except Exception as error:
                seen.append(type(error).__name__)
                raise LookupError from error
        finally:
            seen.append("finally")

    with pytest.raises(LookupError) as caught:
        await made(way, opened, failing())
    assert "division by zero" in str(caught.value.__cause__)
    assert seen[0] == "first"
    assert seen[2] == "finally"


async def test_an_error_that_steps_deal_with_ends_nothing(way: Way) -> None:
    opened = await opened_by(way)

    def dealing() -> Steps[str]:
        try:
            yield BROKEN, {}
        except Exception:
            return "dealt with"
        return "not failed"

    assert await made(way, opened, dealing()) == "dealt with"
