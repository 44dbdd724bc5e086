"""Expressions and types: notation is evened out, meaning is not."""

from collections.abc import Callable
from typing import Any

from faststream_outbox._internal.schema.expression import canonical, canonical_default, canonical_type
from tests.cases import each

SAME: dict[Callable[[Any], object], list[tuple[str, str | None]]] = {
    canonical: [
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
    canonical_default: [
        ("0", "0"),
        ("'0'::bigint", "0"),
        ("(0)::bigint", "0"),
        ("CURRENT_TIMESTAMP", "now()"),
        ("transaction_timestamp()", "now()"),
        ("uuidv7()", "gen_random_uuid()"),
        ("NULL::character varying", None),
    ],
    canonical_type: [
        ("character varying(255)", "VARCHAR(255)"),
        ("character varying", "TEXT"),
        ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
        ("timestamp with time zone", "timestamptz"),
        ("numeric(10,2)", "NUMERIC(10, 2)"),
    ],
}
DIFFERENT: dict[Callable[[Any], object], list[tuple[str, str | None]]] = {
    canonical: [
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
    canonical_default: [
        ("1", "0"),
        ("now()", "clock_timestamp()"),
        ("now()", None),
        ("'00'", "'0'"),
        ("''::text", None),
    ],
    canonical_type: [
        ("character varying(255)", "character varying(64)"),
        ("character varying(255)", "text"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("integer", "bigint"),
    ],
}


def of(table: dict[Callable[[Any], object], list[tuple[str, str | None]]]) -> list[tuple[Any, str, str | None]]:
    return [(even, one, other) for even, pairs in table.items() for one, other in pairs]


@each(("even", "printed", "written"), of(SAME))
def test_what_postgresql_prints_equals_what_was_written(
    even: Callable[[Any], object], printed: str, written: str | None
) -> None:
    assert even(printed) == even(written)


@each(("even", "one", "other"), of(DIFFERENT))
def test_what_says_something_else_stays_different(even: Callable[[Any], object], one: str, other: str | None) -> None:
    assert even(one) != even(other)
