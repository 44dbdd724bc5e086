"""Every statement of the inbox keeps its index and its cost at a million receipts."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, MetaData, create_engine

from faststream_outbox._internal.inbox.receipt import Key
from faststream_outbox.schema import Names, make_inbox_table
from tests.publish.ways import plain
from tests.sql.plans import WIRE, PlanMode, Plans

pytestmark = pytest.mark.slow

SLICE = 1000
KEY = Key("billing", "shop.orders", "message 500000")
DEEPEST = 4
"""Pages from the root of the primary key to a leaf, at ten million receipts too."""


@pytest.fixture(scope="module")
def plans(database_url: URL) -> Iterator[Plans]:
    table = make_inbox_table(MetaData(), "million_inbox")
    builder = create_engine(database_url.set(drivername="postgresql+psycopg"))
    table.create(builder)
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(
            "insert into million_inbox (consumer, source, message_id, received_at) "
            "select 'billing', 'shop.orders', 'message ' || n, now() - make_interval(secs => 1000001 - n) "
            "from generate_series(1, 1000000) n"
        )
        connection.execute("vacuum analyze million_inbox")
        for setting in WIRE:
            connection.execute(f"set {setting} = off")
        yield Plans(connection, Names.of(table))
    table.drop(builder)
    builder.dispose()


def test_receipt_is_written_or_found_without_looking_at_others(plans: Plans, mode: PlanMode) -> None:
    new = Key("billing", "shop.orders", "message 0").values("million_inbox")
    for values in (new, KEY.values("million_inbox")):
        plan = plans.of("inbox", "receive", values, mode)
        assert plan.walked == 0
        # Both indexes, the page of the table, the free space map, and what a new connection looks up in the catalog.
        assert plan.buffers <= 50, plan


@pytest.mark.parametrize("name", ["written_by", "kept_response", "keep_response"])
def test_receipt_is_found_by_its_key(plans: Plans, mode: PlanMode, name: str) -> None:
    answer: dict[str, Any] = {"body": b"x", "content_type": None, "headers": None, "xid": "1"}
    plan = plans.of("inbox", name, {**KEY.values("million_inbox"), **answer}, mode)
    assert plan.scans == {"million_inbox_pkey"}
    assert plan.walked <= 1
    assert plan.buffers <= DEEPEST + 2, plan


@pytest.mark.parametrize("after", [None, datetime(2000, 1, 1, tzinfo=UTC)])
def test_slice_of_retention_walks_what_it_deletes(plans: Plans, mode: PlanMode, after: datetime | None) -> None:
    plan = plans.of("inbox", "clean", {"age": 3600.0, "after": after, "limit": SLICE}, mode)
    assert plan.scans == {"million_inbox_received_idx", "Tid Scan"}
    assert plan.walked <= 2 * SLICE
    assert plan.buffers <= 6 * SLICE, plan


def test_retention_that_has_nothing_to_delete_walks_nothing(plans: Plans, mode: PlanMode) -> None:
    plan = plans.of("inbox", "clean", {"age": 2_000_000.0, "after": None, "limit": SLICE}, mode)
    assert plan.walked == 0
    assert plan.buffers <= 2 * DEEPEST, plan


def test_receipts_of_a_consumer_are_counted_up_to_a_bound(plans: Plans, mode: PlanMode) -> None:
    plan = plans.of("inbox", "consumers", {"limit": 10, "most": 1000}, mode)
    # The consumers' names, one descent each, and the bound.
    assert plan.scans <= {"million_inbox_pkey", "million_inbox_received_idx"}
    assert plan.walked <= 1010
    assert plan.buffers <= 1100, plan


def test_old_receipts_are_counted_up_to_a_bound(plans: Plans, mode: PlanMode) -> None:
    plan = plans.of("inbox", "count_old", {"age": 3600.0, "most": 1000}, mode)
    assert plan.scans == {"million_inbox_received_idx"}
    assert plan.walked <= 1000


def test_first_and_last_receipt_are_found_at_the_ends_of_the_index(plans: Plans, mode: PlanMode) -> None:
    plan = plans.of("inbox", "first_and_last", {}, mode)
    assert plan.scans == {"million_inbox_received_idx"}
    assert plan.walked <= 2
    assert plan.buffers <= 4 * DEEPEST, plan
