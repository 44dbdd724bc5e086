"""Rates between two questions, by what the server has counted."""

from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.overview.processes import NOTHING_YET, Rates, rates_between
from faststream_outbox._internal.sql.overview_rows import WrittenRow
from faststream_outbox.overview import Overview
from tests.overview.conftest import Fill
from tests.waiting import eventually


def test_rates_are_differences_over_time() -> None:
    before, now = WrittenRow(100, 50, 5, 1000.0, False), WrittenRow(140, 70, 6, 1010.0, False)
    assert rates_between(before, now) == Rates(4.0, 2.0, 0.1, 10.0)


def test_without_dead_letters_none_is_said_of_them() -> None:
    before, now = WrittenRow(0, 0, None, 0.0, False), WrittenRow(1, 1, None, 1.0, False)
    assert rates_between(before, now) == Rates(1.0, 1.0, None, 1.0)


def test_nothing_is_said_without_something_to_compare_with() -> None:
    now = WrittenRow(140, 70, 6, 1010.0, False)
    assert rates_between(None, now) == NOTHING_YET
    assert rates_between(now._replace(inserted=999), now) == NOTHING_YET, "the statistics began anew"
    assert rates_between(now, now) == NOTHING_YET, "no time has passed"
    assert rates_between(now._replace(at=0.0), now._replace(is_standby=True)) == NOTHING_YET


async def test_server_counts_what_is_published_and_finished(
    driver_engine: AsyncEngine, table: Table, dlq_table: Table, fill: Fill, sync_engine: Engine
) -> None:
    overview = Overview(driver_engine, table=table, dlq_table=dlq_table)
    assert await overview.rates() == NOTHING_YET
    published = finished = 0.0
    fill(20)
    with sync_engine.begin() as connection:
        connection.execute(text("delete from outbox where id in (select id from outbox limit 5)"))
    # Server processes report when they have time, or end.
    sync_engine.dispose()

    async def all_is_counted() -> bool:
        nonlocal published, finished
        rates = await overview.rates()
        published += (rates.published or 0) * rates.seconds
        finished += (rates.finished or 0) * rates.seconds
        return (round(published), round(finished)) == (20, 5)

    await eventually(all_is_counted)
    await overview.close()
