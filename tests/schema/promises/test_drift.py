"""Drift: each kind is reported as what it is, and its fix repairs it on a table with rows."""

import pytest
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError

from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.cases import case
from tests.schema.conftest import NAMES, Live, named

TABLES = {"{t}": make_outbox_table(MetaData()), "{d}": make_dlq_table(MetaData())}
COLUMNS = [(mark, column) for mark, table in TABLES.items() for column in table.columns]
INDEXES = [(mark, str(index.name)) for mark, table in TABLES.items() for index in sorted(table.indexes, key=str)]
LEASE = "(acquired_token IS NULL) = (acquired_at IS NULL)"

Drift = tuple[list[str], str, str]
"""Statements, the place of what is wrong afterwards, and what is said of it, or how that begins, before a "…"."""


def of_type(action: str, column: str, found: str, wanted: str) -> Drift:
    return [f"ALTER TABLE {{t}} {action}"], f"{{t}}.{column}", f"the type is {found}, and has to be {wanted}"


def of_default(column: str, default: str, problem: str) -> Drift:
    return [f"ALTER TABLE {{t}} ALTER {column} SET DEFAULT {default}"], f"{{t}}.{column}", problem


def of_id(statement: str, problem: str) -> Drift:
    return [statement], "{t}.id", problem


def of_check(enforced: str, problem: str) -> Drift:
    return [f"ALTER TABLE {{t}} DROP CONSTRAINT outbox_lease_ck{enforced}"], "{t}", problem


def of_index(definition: str, *, kind: str = "INDEX", name: str = "outbox_claim_idx", mark: str = "{t}") -> Drift:
    made = [f"DROP INDEX {{s}}.{name}", f"CREATE {kind} {name} ON {mark} {definition}"]
    return made, f"{mark} index {name}", "the index is defined differently; needed is …"


def of_claims(statement: str, column: str) -> Drift:
    return [statement], "{t} index mine", f"it mentions {column}: …"


def of_table(action: str, problem: str) -> Drift:
    return [f"ALTER TABLE {{t}} {action}"], "{t}", problem


UNFIT = 'its sequence "Drift S".outbox_id_seq runs out too early, or does not number messages in their order'
NO_CHECK = f"no constraint enforces CHECK ({LEASE})"
DRIFTS: dict[str, list[Drift]] = {
    "another type": [
        of_type("ALTER queue TYPE text", "queue", "text", "varchar(255)"),
        of_type("ALTER timer_id TYPE varchar(64)", "timer_id", "character varying(64)", "varchar(255)"),
        of_type("ALTER headers TYPE json", "headers", "json", "jsonb"),
        of_type("ALTER headers TYPE text", "headers", "text", "jsonb"),
        of_type("ALTER payload TYPE text USING convert_from(payload, 'UTF8')", "payload", "text", "bytea"),
        of_type("ALTER payload TYPE jsonb USING '1'", "payload", "jsonb", "bytea"),
        of_type("ALTER priority TYPE integer", "priority", "integer", "smallint"),
        of_type(
            "ALTER first_attempt_at TYPE timestamp",
            "first_attempt_at",
            "timestamp without time zone",
            "timestamp with time zone",
        ),
        of_type(
            "ALTER message_id DROP DEFAULT, ALTER message_id TYPE text, ALTER message_id SET DEFAULT gen_random_uuid()",
            "message_id",
            "text",
            "uuid",
        ),
    ],
    "a dropped default": [
        (
            [f"ALTER TABLE {mark} ALTER {column.name} DROP DEFAULT"],
            f"{mark}.{column.name}",
            "it has no default: publishing would fail",
        )
        for mark, column in COLUMNS
        if column.server_default is not None
    ],
    "another default": [
        of_default("priority", "5", "the default is 5, and has to be 0"),
        of_default("next_attempt_at", "clock_timestamp()", "the default is clock_timestamp(), and has to be now()"),
        of_default("acquired_at", "now()", "it has the default now(), and has to have none"),
        of_default("timer_id", "''", "it has the default ''::character varying, and has to have none"),
    ],
    "null": [
        (["ALTER TABLE {t} ALTER queue DROP NOT NULL"], "{t}.queue", "it allows NULL"),
        (["ALTER TABLE {t} ALTER payload DROP NOT NULL"], "{t}.payload", "it allows NULL"),
        (
            ["ALTER TABLE {t} ALTER next_attempt_at DROP NOT NULL", "UPDATE {t} SET next_attempt_at = NULL"],
            "{t}.next_attempt_at",
            "it allows NULL",
        ),
        (
            ["UPDATE {t} SET key = ''", "ALTER TABLE {t} ALTER key SET NOT NULL"],
            "{t}.key",
            "it is NOT NULL: publishing would fail",
        ),
        (
            [
                "ALTER TABLE {t} ADD COLUMN tenant text NOT NULL DEFAULT 'none'",
                "ALTER TABLE {t} ALTER tenant DROP DEFAULT",
            ],
            "{t}.tenant",
            "a column of your own is NOT NULL and has no default: …",
        ),
    ],
    "a sequence that is unfit for ids": [
        of_id("ALTER SEQUENCE {s}.outbox_id_seq AS integer", UNFIT),
        of_id("ALTER SEQUENCE {s}.outbox_id_seq CACHE 20", UNFIT),
        of_id("ALTER SEQUENCE {s}.outbox_id_seq CYCLE", UNFIT),
        of_id("ALTER SEQUENCE {s}.outbox_id_seq INCREMENT BY -1 MINVALUE -100", UNFIT),
        of_id(
            "ALTER SEQUENCE {s}.outbox_id_seq OWNED BY NONE",
            'its sequence "Drift S".outbox_id_seq does not belong to it…',
        ),
    ],
    "an identity that is unfit for ids": [
        of_id(
            "ALTER TABLE {t} ALTER id DROP DEFAULT, ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (CACHE 20)",
            UNFIT.replace("outbox_id_seq", "outbox_id_seq1"),
        ),
        of_id(
            "ALTER TABLE {t} ALTER id SET GENERATED ALWAYS",
            "it is GENERATED ALWAYS: what comes back under its own number…",
        ),
    ],
    "a generated column": [
        (
            [
                "ALTER TABLE {t} DROP COLUMN headers",
                "ALTER TABLE {t} ADD COLUMN headers jsonb GENERATED ALWAYS AS ('null') STORED",
            ],
            "{t}.headers",
            "it is a generated column: publishing would fail",
        )
    ],
    "the primary key": [
        of_table("DROP CONSTRAINT outbox_pkey", "the primary key is missing, and has to be (id)"),
        of_table(
            "DROP CONSTRAINT outbox_pkey, ADD PRIMARY KEY (queue, id)",
            "the primary key is (queue, id), and has to be (id)",
        ),
        of_table(
            "DROP CONSTRAINT outbox_pkey, ADD CONSTRAINT outbox_pkey PRIMARY KEY (id) DEFERRABLE",
            "the primary key is DEFERRABLE: ON CONFLICT cannot use it…",
        ),
    ],
    "a missing index": [
        ([f"DROP INDEX {{s}}.{name}"], f"{mark} index {name}", "the index is missing; needed is …")
        for mark, name in INDEXES
    ],
    "an index that is defined differently": [
        of_index("(queue, next_attempt_at, priority, id) WHERE key IS NULL"),
        of_index("(queue, priority, next_attempt_at) WHERE key IS NULL"),
        of_index("(queue, priority DESC, next_attempt_at, id) WHERE key IS NULL"),
        of_index("(queue, priority NULLS FIRST, next_attempt_at, id) WHERE key IS NULL"),
        of_index('(queue COLLATE "POSIX", priority, next_attempt_at, id) WHERE key IS NULL'),
        of_index("(queue text_pattern_ops, priority, next_attempt_at, id) WHERE key IS NULL"),
        of_index("(lower(queue), priority, next_attempt_at, id) WHERE key IS NULL"),
        of_index("(queue, priority, next_attempt_at, id)"),
        of_index("(queue, priority, next_attempt_at, id) WHERE key IS NOT NULL"),
        of_index("(queue, priority, next_attempt_at, id) INCLUDE (payload) WHERE key IS NULL"),
        of_index("(queue, timer_id) WHERE timer_id IS NOT NULL", name="outbox_timer_id_uq"),
        of_index("(queue, timer_id)", kind="UNIQUE INDEX", name="outbox_timer_id_uq"),
        of_index("USING brin (queue, failed_at)", name="outbox_dlq_queue_failed_idx", mark="{d}"),
    ],
    "an index on what a claim writes": [
        of_claims("CREATE INDEX mine ON {t} (acquired_at)", "acquired_at"),
        of_claims("CREATE INDEX mine ON {t} (queue) WHERE acquired_token IS NULL", "acquired_token"),
        of_claims("CREATE INDEX mine ON {t} (queue) INCLUDE (deliveries_count)", "deliveries_count"),
        of_claims("CREATE INDEX mine ON {t} ((acquired_at AT TIME ZONE 'UTC'))", "acquired_at"),
        of_claims("ALTER TABLE {t} ADD CONSTRAINT mine UNIQUE (id, acquired_token)", "acquired_token"),
    ],
    "a check": [
        of_check("", NO_CHECK),
        of_check(
            ", ADD CONSTRAINT outbox_lease_ck CHECK (acquired_token IS NULL OR acquired_at IS NOT NULL)", NO_CHECK
        ),
        of_check(
            f", ADD CONSTRAINT outbox_lease_ck CHECK ({LEASE}) NOT VALID",
            "the constraint outbox_lease_ck is NOT VALID: rows from before may break it…",
        ),
    ],
    "storage": [
        of_table("RESET (fillfactor)", "fillfactor is 100, and has to be 45: claims find no room on their page"),
        of_table("SET (fillfactor = 90)", "fillfactor is 90, and has to be 45: claims find no room on their page"),
        of_table("SET UNLOGGED", "the table is UNLOGGED: a crash of the server empties it"),
    ],
    "what PostgreSQL 18 has": [
        (
            [
                "ALTER TABLE {t} DROP COLUMN headers",
                "ALTER TABLE {t} ADD COLUMN headers jsonb GENERATED ALWAYS AS ('null') VIRTUAL",
            ],
            "{t}.headers",
            "it is a generated column: publishing would fail",
        ),
        of_check(f", ADD CONSTRAINT outbox_lease_ck CHECK ({LEASE}) NOT ENFORCED", NO_CHECK),
    ],
}
HARMLESS = [
    "ALTER TABLE {t} ADD COLUMN tenant text",
    "ALTER TABLE {t} ADD COLUMN tenant text NOT NULL DEFAULT 'none'",
    "ALTER TABLE {t} ADD COLUMN number bigint GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE {t} ADD COLUMN size integer NOT NULL GENERATED ALWAYS AS (length(payload)) STORED",
    "CREATE INDEX mine ON {t} (created_at)",
    "CREATE INDEX mine ON {t} (last_attempt_at)",
    "CREATE INDEX mine ON {d} (deliveries_count)",
    "ALTER TABLE {t} ADD CONSTRAINT mine CHECK (queue <> '')",
    "ALTER TABLE {t} RENAME CONSTRAINT outbox_lease_ck TO renamed",
    "ALTER TABLE {t} RENAME CONSTRAINT outbox_pkey TO renamed",
    "ALTER INDEX {s}.outbox_claim_idx RENAME TO renamed",
    "ALTER INDEX {s}.outbox_timer_id_uq RENAME TO renamed",
    "ALTER TABLE {t} SET (fillfactor = 30)",
    "ALTER TABLE {t} ALTER queue SET DEFAULT 'default'",
    "ALTER TABLE {t} ALTER timer_id SET DEFAULT NULL",
    "ALTER TABLE {t} ALTER created_at SET DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE {t} ALTER attempts_count SET DEFAULT '0'",
    "ALTER TABLE {t} ALTER key TYPE varchar",
    "ALTER TABLE {t} ALTER id DROP DEFAULT, ALTER id ADD GENERATED BY DEFAULT AS IDENTITY",
    "ALTER TABLE {t} DROP CONSTRAINT outbox_lease_ck,"
    " ADD CONSTRAINT other CHECK ((acquired_at IS NULL) = (acquired_token IS NULL))",
]


def shown(problem: str, wanted: str) -> str:
    """As much of what is said as is wanted."""
    return problem[: len(wanted) - 1] + "…" if wanted.endswith("…") else problem


@pytest.mark.parametrize("kind", DRIFTS)
async def test_drift_is_reported_as_what_it_is_and_repaired_by_its_fix(kind: str, live: Live) -> None:
    if "PostgreSQL 18" in kind:
        live.since(18)
    for statements, where, problem in DRIFTS[kind]:
        with case(statements):
            live.execute(*statements)
            [difference] = await live.differences(dead="{d}" in where)
            assert (difference.where, shown(difference.problem, problem)) == (named(where), problem)
            live.repair([difference])
            assert await live.differences(dead="{d}" in where) == []


@pytest.mark.parametrize("statement", HARMLESS)
async def test_what_does_no_harm_is_left_alone(statement: str, live: Live) -> None:
    live.execute(statement)
    assert await live.differences(dead=True) == []


async def test_a_missing_column_is_reported_and_added(live: Live) -> None:
    for mark, column in COLUMNS:
        with case((mark, column.name)):
            live.execute(f"ALTER TABLE {mark} DROP COLUMN {column.name}")
            differences = await live.differences(dead=mark == "{d}")
            found = [(item.where, item.problem) for item in differences]
            assert (f"{NAMES[mark]}.{column.name}", "the column is missing") in found
            live.repair(differences)
            assert await live.differences(dead=mark == "{d}") == []


async def test_a_string_that_is_too_long_for_the_type_is_not_cut_by_the_fix(live: Live) -> None:
    live.execute("ALTER TABLE {t} ALTER queue TYPE text", "UPDATE {t} SET queue = repeat('q', 256)")
    differences = await live.differences()
    with pytest.raises(DBAPIError, match="value too long"):
        live.repair(differences)


async def test_a_payload_kept_as_text_keeps_its_backslashes(live: Live) -> None:
    live.execute("ALTER TABLE {t} ALTER payload TYPE text USING ''", r"""UPDATE {t} SET payload = '"a\nb"'""")
    live.repair(await live.differences())
    assert live.answers("SELECT payload FROM {t}") == [rb'"a\nb"']


@pytest.mark.parametrize(
    ("statements", "next_id"),
    [
        pytest.param(["UPDATE {t} SET id = 1000", "ALTER TABLE {t} ALTER id DROP DEFAULT"], 1001, id="dropped"),
        pytest.param(["UPDATE {t} SET id = 1000", "DROP SEQUENCE {s}.outbox_id_seq CASCADE"], 1001, id="gone"),
        pytest.param(
            [
                "UPDATE {t} SET id = 1000",
                "ALTER TABLE {t} ALTER id DROP DEFAULT",
                "ALTER SEQUENCE {s}.outbox_id_seq CACHE 9 OWNED BY NONE",
            ],
            1001,
            id="nobody's",
        ),
        pytest.param(
            ["UPDATE {t} SET id = 1000", "ALTER TABLE {t} ALTER id SET DEFAULT 7"], 1001, id="always the same"
        ),
        pytest.param(
            ["SELECT setval('{s}.outbox_id_seq', 500)", "ALTER TABLE {t} ALTER id DROP DEFAULT"], 501, id="ahead"
        ),
    ],
)
async def test_an_id_that_nothing_numbers_goes_on_behind_all_that_were_in_use(
    statements: list[str], next_id: int, live: Live
) -> None:
    live.execute(*statements)
    [difference] = await live.differences()
    assert difference.problem == "nothing numbers it: publishing would fail"
    live.repair([difference])
    assert await live.differences() == []
    added = live.answers("INSERT INTO {t} (queue, payload) VALUES ('orders', '2') RETURNING id")
    assert added == [next_id]


async def test_an_integer_id_is_widened(live: Live) -> None:
    live.execute("ALTER TABLE {t} ALTER id TYPE integer", "ALTER SEQUENCE {s}.outbox_id_seq AS integer")
    differences = await live.differences()
    assert differences[0].problem == "the type is integer, and has to be bigint"
    live.repair(differences)
    assert await live.differences() == []


@pytest.mark.parametrize(
    ("name", "beside", "problem"),
    [
        ("outbox_timer_id_uq", [], "outbox_timer_id_uq is invalid, left by a CREATE INDEX CONCURRENTLY…"),
        (
            "left_over",
            ["CREATE UNIQUE INDEX outbox_timer_id_uq ON {t} (queue, timer_id) WHERE timer_id IS NOT NULL"],
            "it is invalid, left by a CREATE or REINDEX INDEX CONCURRENTLY that failed",
        ),
    ],
)
async def test_an_index_that_failed_to_build_is_replaced_or_dropped_beside_a_good_one(
    name: str, beside: list[str], problem: str, live: Live
) -> None:
    live.execute(
        "DROP INDEX {s}.outbox_timer_id_uq",
        "INSERT INTO {t} (queue, payload, timer_id) VALUES ('orders', '', 'a')",
    )
    with pytest.raises(DBAPIError, match="could not create unique index"):
        live.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {{t}} (queue, timer_id) WHERE timer_id IS NOT NULL")
    live.execute("DELETE FROM {t}", *beside)
    [difference] = await live.differences()
    assert (difference.where, shown(difference.problem, problem)) == (f'"Drift S".outbox index {name}', problem)
    live.repair([difference])
    assert await live.differences() == []


async def test_our_index_with_a_lease_column_added_is_made_anew(live: Live) -> None:
    live.execute(
        "DROP INDEX {s}.outbox_key_idx",
        "CREATE INDEX outbox_key_idx ON {t} (queue, key, id) INCLUDE (acquired_at)"
        " WHERE key IS NOT NULL AND timer_id IS NULL AND next_attempt_at <= created_at",
    )
    live.repair(await live.differences())
    assert await live.differences() == []
