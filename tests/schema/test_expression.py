"""Expressions and types: notation is evened out, meaning is not."""

from faststream_outbox._internal.schema.expression import canonical, canonical_default, canonical_type
from tests.cases import each


@each(
    ("printed", "written"),
    [
        ("(key IS NULL)", "key IS NULL"),
        ("((key IS NULL))", "key is null"),
        ('("key" IS NOT NULL)', "key IS NOT NULL"),
        ("((acquired_token IS NULL) = (acquired_at IS NULL))", "(acquired_token IS NULL) = (acquired_at IS NULL)"),
        ("((acquired_at IS NULL) = (acquired_token IS NULL))", "(acquired_token IS NULL) = (acquired_at IS NULL)"),
        ("((queue)::text = 'a b'::text)", "queue = 'a b'"),
        ("((queue)::character varying(255) = 'a'::character varying(255))", "queue = 'a'"),
        ("(created_at > '2026-01-01 00:00:00+00'::timestamp with time zone)", "created_at > '2026-01-01 00:00:00+00'"),
        ("((key IS NULL) AND (timer_id IS NOT NULL))", "key IS NULL AND timer_id IS NOT NULL"),
        ("(NOT (key IS NULL))", "NOT key IS NULL"),
        ("(lower((queue)::text) = 'x'::text)", "lower(queue) = 'x'"),
        ("(queue = ANY (ARRAY['a'::text, 'b'::text]))", "queue = ANY (ARRAY['a', 'b'])"),
    ],
)
def test_what_postgresql_prints_equals_what_was_written(printed: str, written: str) -> None:
    assert canonical(printed) == canonical(written)


@each(
    ("one", "other"),
    [
        ("key IS NULL", "key IS NOT NULL"),
        ("key IS NULL", "timer_id IS NULL"),
        ("queue = 'a'", "queue = 'A'"),
        ("queue = 'a::text'", "queue = 'a'"),
        ("queue = '(a)'", "queue = 'a'"),
        ('"Key" IS NULL', "key IS NULL"),
        ("(a + b) * c > 1", "a + b * c > 1"),
        ("(a OR b) AND c", "a OR b AND c"),
        ("NOT (a AND b)", "NOT a AND b"),
        ("lower(queue) = 'x'", "queue = 'x'"),
        ("(acquired_token IS NULL) = (acquired_at IS NULL)", "(acquired_token IS NULL) <> (acquired_at IS NULL)"),
    ],
)
def test_expressions_that_say_something_else_stay_different(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@each(
    ("printed", "written"),
    [
        ("0", "0"),
        ("'0'::bigint", "0"),
        ("(0)::bigint", "0"),
        ("CURRENT_TIMESTAMP", "now()"),
        ("transaction_timestamp()", "now()"),
        ("uuidv7()", "gen_random_uuid()"),
        ("NULL::character varying", None),
    ],
)
def test_defaults_that_serve_equally_are_equal(printed: str, written: str | None) -> None:
    assert canonical_default(printed) == canonical_default(written)


@each(
    ("one", "other"),
    [("1", "0"), ("now()", "clock_timestamp()"), ("now()", None), ("'00'", "'0'"), ("''::text", None)],
)
def test_other_defaults_are_different(one: str, other: str | None) -> None:
    assert canonical_default(one) != canonical_default(other)


@each(
    ("printed", "written"),
    [
        ("character varying(255)", "VARCHAR(255)"),
        ("character varying", "TEXT"),
        ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        ("timestamp with time zone", "timestamptz"),
        ("numeric(10,2)", "NUMERIC(10, 2)"),
    ],
)
def test_two_names_of_a_type_are_equal(printed: str, written: str) -> None:
    assert canonical_type(printed) == canonical_type(written)


@each(
    ("one", "other"),
    [
        ("character varying(255)", "character varying(64)"),
        ("character varying(255)", "text"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("integer", "bigint"),
    ],
)
def test_other_types_are_different(one: str, other: str) -> None:
    assert canonical_type(one) != canonical_type(other)
