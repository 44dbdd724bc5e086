"""Dead letters to look at: groups of those that failed alike, and pages of letters."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.overview import message as dead
from faststream_outbox.errors import InvalidOption
from faststream_outbox.overview import Overview
from faststream_outbox.queue import Selection


async def test_letters_that_failed_alike_are_counted(overview: Overview, bury: Callable[..., Any]) -> None:
    bury(2, error_type="'KeyError'")
    bury(3)
    bury(1, "mails")
    found = [(each.queue, each.reason, each.error_type, each.count) for each in await overview.dead_groups()]
    assert found == [
        ("orders", "rejected", None, 3),
        ("orders", "rejected", "KeyError", 2),
        ("mails", "rejected", None, 1),
    ]


async def test_newest_letters_are_grouped(
    overview: Overview, bury: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(10, "old")
    bury(5, "new")
    monkeypatch.setattr(dead, "MOST_GROUPED", 5)
    assert [(each.queue, each.count) for each in await overview.dead_groups()] == [("new", 5)]


async def test_letters_come_page_by_page(overview: Overview, bury: Callable[..., Any]) -> None:
    ids = bury(5)
    bury(5, "mails")
    orders = Selection(queue="orders")
    first = await overview.dead_letters(orders, limit=3)
    second = await overview.dead_letters(orders, limit=3, after=first[-1].id)
    assert [letter.id for letter in [*first, *second]] == ids
    assert list(await overview.dead_letters(orders, after=second[-1].id)) == []
    assert [letter.id for letter in await overview.dead_letters(Selection(ids=[ids[2]]))] == [ids[2]]


async def test_selection_that_says_nothing_is_refused(overview: Overview) -> None:
    with pytest.raises(InvalidOption, match="everything"):
        await overview.dead_letters(Selection())
    with pytest.raises(InvalidOption, match="limit"):
        await overview.dead_letters(Selection(everything=True), limit=0)


async def test_without_a_table_of_dead_letters_it_is_asked_for(engine: AsyncEngine, table: Table) -> None:
    overview = Overview(engine, table=table)
    with pytest.raises(InvalidOption, match="dlq_table=make_dlq_table"):
        await overview.dead_groups()
    assert await overview.message(1) is None
    await overview.close()
