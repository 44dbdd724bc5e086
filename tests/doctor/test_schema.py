"""The schema: what differs, indexes, sequences, partitions, and tables that a crash empties; each repaired by SQL."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import Envelope
from faststream_outbox._internal.doctor.schema import judge_ids, judge_indexes
from faststream_outbox._internal.sql.doctor_rows import DrawnRow, IndexRow
from faststream_outbox.publish import publish
from faststream_outbox.testing.postgres import PostgresServer
from tests.cases import case, each
from tests.doctor.clinic import Clinic
from tests.doctor.test_queues import letters
from tests.tables import all_existing

INDEX = IndexRow(
    "public.mine", "public.outbox", "outbox", False, True, False, False, False, ("headers",), 0, 10**6, 8192
)


async def test_difference_is_printed_with_what_repairs_it(clinic: Clinic) -> None:
    assert await clinic.found("schema") == []
    for change in (
        "alter table outbox drop column deliveries_count",
        "alter table outbox_log_deferred alter column attempts drop default",
        "alter table inbox alter column received_at drop not null",
        "drop table outbox_dlq",
        "drop table outbox",
    ):
        with case(change):
            clinic.execute(change)
            assert (await clinic.heals("schema")).severity == "critical"


async def test_difference_that_no_sql_repairs_is_said_in_words(clinic: Clinic) -> None:
    clinic.execute("create rule nothing as on insert to outbox do instead nothing")
    finding = await clinic.one("schema")
    assert finding.repair is None
    assert "the rule nothing does something INSTEAD" in finding.detail


async def test_missing_table_stops_only_those_who_read_it(clinic: Clinic) -> None:
    clinic.execute("drop table outbox_dlq")
    findings = await clinic.doctor().examine()
    missed = {item.check for item in findings if "misses a table" in item.title}
    assert missed == {"dead_ids", "dead_letters", "held_keys"}
    assert next(item for item in findings if item.check == "ready").severity == "ok"


async def test_missing_index_is_printed_with_what_makes_it(clinic: Clinic) -> None:
    assert await clinic.found("indexes") == []
    asked = "select indexrelid::regclass::text from pg_index where indrelid = %s::regclass and not indisprimary limit 1"
    for table in ("outbox", "outbox_log_ticks", "inbox"):
        with case(table):
            with psycopg.connect(clinic.dsn) as connection:
                ((index,),) = connection.execute(asked, [table]).fetchall()
            clinic.execute(f"drop index {index}")
            assert "CREATE" in ((await clinic.heals("indexes")).repair or "")


async def test_invalid_index_is_named_and_can_be_dropped(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (queue, payload) values ('q', ''), ('q', '')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        clinic.execute("create unique index concurrently twice on outbox (queue)")
    finding = await clinic.heals("indexes")
    assert finding.title == "public.twice is invalid"


async def test_invalid_index_that_is_needed_is_replaced(clinic: Clinic) -> None:
    clinic.execute("update pg_index set indisvalid = false where indexrelid = 'outbox_claim_idx'::regclass")
    finding = await clinic.heals("indexes")
    assert "outbox_claim_idx is invalid" in finding.detail


async def test_index_that_was_never_read_is_mentioned_after_many_rows(clinic: Clinic) -> None:
    clinic.execute(
        "create index mine on outbox (priority)",
        "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 100)",
        "select pg_stat_force_next_flush()",
    )
    assert await clinic.found("indexes") == []
    finding = await clinic.heals("indexes", unused_index_rows=100)
    assert (finding.severity, finding.title) == ("notice", "public.mine was never read")


def test_indexes_that_are_needed_or_decide_something_are_never_called_unused() -> None:
    changes = [{"columns": ("queue", "key")}, {"is_unique": True}, {"is_constraint": True}, {"scans": 1}]
    changes += [{"is_usable": False, "is_building": True}]
    fine = [INDEX._replace(**each) for each in changes]
    needed = {"outbox": {("queue", "key")}}
    assert list(judge_indexes([], fine, needed, 1000)) == []
    assert list(judge_indexes([], [INDEX], needed, None)) == [], "a standby counts for itself"
    assert len(list(judge_indexes([], [INDEX], needed, 1000))) == 1


async def test_unlogged_table_is_named_and_can_be_logged(clinic: Clinic) -> None:
    assert await clinic.found("unlogged") == []
    clinic.execute("alter table outbox set unlogged")
    assert (await clinic.heals("unlogged")).severity == "critical"
    assert await clinic.found("schema") == []


async def test_ids_that_would_be_drawn_again(clinic: Clinic) -> None:
    clinic.execute(
        "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 20)",
        "select setval('outbox_id_seq', 3)",
    )
    finding = await clinic.heals("ids")
    assert (finding.severity, finding.facts["drawn"], finding.facts["highest"]) == ("critical", 3, 20)
    async with clinic.engine.begin() as connection:
        await publish(connection, clinic.table, Envelope(queue="q", body=b""))


async def test_sequence_that_was_never_drawn_from(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (id, queue, payload) values (5, 'q', '')")
    assert (await clinic.heals("ids")).facts["drawn"] == 0


async def test_ids_of_dead_letters(clinic: Clinic) -> None:
    clinic.execute(letters(first=7, last=7))
    await clinic.heals("dead_ids")


async def test_ids_that_no_sequence_reaches_do_not_count(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (id, queue, payload) values (9223372036854775807, 'q', '')")
    assert await clinic.found("ids") == []


async def test_positions_that_would_be_drawn_again(clinic: Clinic) -> None:
    await clinic.publish(*range(5))
    await clinic.log.lag()
    assert await clinic.found("positions") == []
    clinic.execute("select setval('outbox_log_head_drawn_seq', 2)")
    finding = await clinic.heals("positions")
    assert (finding.facts["drawn"], finding.facts["highest"]) == (2, 5)
    assert await clinic.publish(6) == (6,)


@each("may_read", [True, False])
def test_column_without_a_sequence_is_left_to_the_schema(may_read: bool) -> None:
    assert list(judge_ids("ids", [DrawnRow(None, may_read, None, 5)], "outbox", "me")) == []


@pytest.fixture
async def parts(server: PostgresServer, engine: AsyncEngine, builder: Engine) -> AsyncIterator[Clinic]:
    made = Clinic(server, engine, partitioned=True)
    with all_existing(list(made.metadata.sorted_tables), builder):
        await made.log.setup()
        yield made
        await made.log.cleanup()


async def test_rows_in_the_rest_are_seen_and_parts_can_be_made(parts: Clinic) -> None:
    assert await parts.found("partitions") == []
    await parts.publish(1)
    parts.execute("analyze outbox_log")
    finding = await parts.heals("partitions")
    assert finding.facts["partition"] == "public.outbox_log_rest"
    await parts.publish(1)
    parts.execute("analyze outbox_log")
    assert await parts.found("partitions") == []


async def test_default_partition_is_seen_and_can_be_emptied(parts: Clinic) -> None:
    parts.execute(
        "create table mine partition of outbox_log default",
        "insert into outbox_log (position, uri, slot, body, metadata, created_at, transaction_id)"
        " values (-1, 'orders', 0, '', '{}', now(), 1)",
    )
    finding = await parts.one("partitions", "DEFAULT")
    assert "retention" in finding.cost
    # What lies before the first part has to have a place.
    parts.execute("delete from mine")
    await parts.heals("partitions", "DEFAULT")
