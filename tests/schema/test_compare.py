"""The comparison as a function of two values: what no live database shows on demand."""

from dataclasses import replace

from sqlalchemy import MetaData

from faststream_outbox._internal.schema.compare import compare
from faststream_outbox._internal.schema.shape import (
    Absent,
    Expected,
    Found,
    FoundCheck,
    FoundColumn,
    FoundIndex,
    described,
)
from faststream_outbox._internal.schema.tables import make_outbox_table
from tests.cases import each

EXPECTED = described(
    make_outbox_table(MetaData()), schema=None, lease_columns=frozenset({"acquired_at", "acquired_token"})
)


def live(expected: Expected) -> Found:
    """A database that has just what is expected."""
    return Found(
        table=expected.table,
        schema="public",
        columns=tuple(
            FoundColumn(
                column.name,
                column.type,
                column.nullable,
                "nextval('outbox_id_seq'::regclass)" if column.serial else column.default,
            )
            for column in expected.columns
        ),
        primary_key=expected.primary_key,
        primary_key_name="outbox_pkey",
        indexes=tuple(
            FoundIndex(index.name, index.columns, index.unique, index.predicate) for index in expected.indexes
        ),
        checks=tuple(FoundCheck(str(check.name), check.predicate) for check in expected.checks),
        options={"fillfactor": "45"},
    )


FOUND = live(EXPECTED)
CLAIM = next(index for index in FOUND.indexes if index.name == "outbox_claim_idx")


def with_indexes(*indexes: FoundIndex) -> Found:
    kept = [index for index in FOUND.indexes if index.name != CLAIM.name]
    return replace(FOUND, indexes=(*kept, *indexes))


def test_what_is_as_expected_has_no_differences() -> None:
    assert compare(EXPECTED, FOUND) == []


@each(("building", "reported"), [(True, 0), (False, 1)])
def test_an_invalid_twin_is_reported_unless_an_index_is_being_built(building: bool, reported: int) -> None:
    twin = replace(CLAIM, name="outbox_claim_idx_ccnew", usable=False, building=building)
    assert len(compare(EXPECTED, with_indexes(CLAIM, twin))) == reported


def test_an_invalid_index_that_has_no_valid_twin_is_reported_even_while_building() -> None:
    [difference] = compare(EXPECTED, with_indexes(replace(CLAIM, usable=False, building=True)))
    assert difference.where == "public.outbox index outbox_claim_idx"


def test_an_invalid_index_of_the_users_own_is_left_alone() -> None:
    mine = FoundIndex("mine", ("created_at",), usable=False)
    assert compare(EXPECTED, with_indexes(CLAIM, mine)) == []


def test_an_index_under_our_name_is_no_harm_where_another_serves() -> None:
    serving = replace(CLAIM, name="renamed")
    other = FoundIndex(CLAIM.name, ("created_at",))
    assert compare(EXPECTED, with_indexes(serving, other)) == []


def test_an_index_on_a_lease_column_is_dropped_before_its_name_is_used_again() -> None:
    leased = FoundIndex(CLAIM.name, ("acquired_at",), mentions=frozenset({"acquired_at"}))
    fixes = [item.fix for item in compare(EXPECTED, with_indexes(leased))]
    drop = "DROP INDEX CONCURRENTLY IF EXISTS public.outbox_claim_idx;"
    assert fixes[0] == drop
    assert fixes[1].splitlines()[0] == drop
    assert fixes[1].splitlines()[1].startswith("CREATE INDEX CONCURRENTLY outbox_claim_idx ON public.outbox (")


def test_the_primary_key_is_never_dropped_as_an_index() -> None:
    key = FoundIndex("outbox_pkey", ("id",), unique=True, mentions=frozenset({"acquired_at"}), primary=True)
    assert compare(EXPECTED, with_indexes(CLAIM, key)) == []


def test_a_column_without_a_default_is_reported_before_its_null_is_forbidden() -> None:
    columns = tuple(
        replace(column, default=None, nullable=True) if column.name == "created_at" else column
        for column in FOUND.columns
    )
    fixes = [item.fix.splitlines()[0] for item in compare(EXPECTED, replace(FOUND, columns=columns))]
    assert fixes == [
        "ALTER TABLE public.outbox ALTER COLUMN created_at SET DEFAULT now();",
        "UPDATE public.outbox SET created_at = DEFAULT WHERE created_at IS NULL;",
    ]


def test_nothing_under_the_name_is_one_difference() -> None:
    [difference] = compare(EXPECTED, Absent())
    assert difference.where == "outbox"
    assert difference.fix.startswith("CREATE TABLE outbox (id bigserial, queue varchar(255) NOT NULL, ")


def test_a_schema_that_exists_is_not_created() -> None:
    expected = replace(EXPECTED, schema="app")
    [absent] = compare(expected, Absent(schema_exists=False))
    [there] = compare(expected, Absent(schema_exists=True))
    assert absent.fix == f"CREATE SCHEMA IF NOT EXISTS app;\n{there.fix}"


def test_every_statement_of_every_fix_is_on_a_line_of_its_own() -> None:
    empty = replace(FOUND, columns=(), primary_key=(), indexes=(), checks=(), options={}, logged=False)
    lines = [line for item in compare(EXPECTED, empty, check_autovacuum=True) for line in item.fix.splitlines()]
    assert all(line.endswith(";") and line.count(";") == 1 for line in lines)
