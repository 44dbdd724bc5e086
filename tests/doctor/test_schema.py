"""The schema: what differs, indexes, and tables that a crash empties; each repaired by what is printed."""

import psycopg
import pytest

from faststream_outbox._internal.doctor.schema import judge_indexes
from faststream_outbox._internal.sql.doctor_rows import IndexRow
from tests.doctor.clinic import Clinic

INDEX = IndexRow(
    "public.mine", "public.outbox", "outbox", False, True, False, False, False, ("headers",), 0, 10**6, 8192
)


@pytest.mark.parametrize(
    "change",
    [
        "alter table outbox drop column deliveries_count",
        "alter table outbox_log_deferred alter column attempts drop default",
        "alter table inbox alter column received_at drop not null",
        "drop table outbox_dlq",
        "drop table outbox",
    ],
)
async def test_difference_is_printed_with_what_repairs_it(change: str, clinic: Clinic) -> None:
    assert await clinic.found("schema") == []
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


@pytest.mark.parametrize("table", ["outbox", "outbox_log_ticks", "inbox"])
async def test_missing_index_is_printed_with_what_makes_it(table: str, clinic: Clinic) -> None:
    assert await clinic.found("indexes") == []
    with psycopg.connect(clinic.dsn) as connection:
        asked = (
            "select indexrelid::regclass::text from pg_index where indrelid = %s::regclass and not indisprimary limit 1"
        )
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
    fine = [
        INDEX._replace(columns=("queue", "key")),
        INDEX._replace(is_unique=True),
        INDEX._replace(is_constraint=True),
        INDEX._replace(scans=1),
        INDEX._replace(is_usable=False, is_building=True),
    ]
    needed = {"outbox": {("queue", "key")}}
    assert list(judge_indexes([], fine, needed, 1000)) == []
    assert list(judge_indexes([], [INDEX], needed, None)) == [], "a standby counts for itself"
    assert len(list(judge_indexes([], [INDEX], needed, 1000))) == 1


async def test_unlogged_table_is_named_and_can_be_logged(clinic: Clinic) -> None:
    assert await clinic.found("unlogged") == []
    clinic.execute("alter table outbox set unlogged")
    assert (await clinic.heals("unlogged")).severity == "critical"
    assert await clinic.found("schema") == []
