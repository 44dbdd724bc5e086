"""What cannot be repaired safely is said in words, with what it costs and what to do; nothing is printed to run."""

from collections.abc import Iterator

import pytest
from sqlalchemy import MetaData, text

from faststream_outbox._internal.schema.check import find_log_differences, validate_log_schema
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.errors import SchemaMismatch
from faststream_outbox.log import make_log_tables
from faststream_outbox.schema import find_differences, make_outbox_table, validate_schema

from .conftest import Live

COLUMNS = "id bigint, queue text, payload bytea"
OTHERS = {
    "a view": ("CREATE VIEW {t} AS SELECT 1 AS id", "VIEW"),
    "a materialized view": ("CREATE MATERIALIZED VIEW {t} AS SELECT 1 AS id", "MATERIALIZED VIEW"),
    "a partitioned table": (f"CREATE TABLE {{t}} ({COLUMNS}) PARTITION BY RANGE (id)", "TABLE"),
    "a foreign table": (f"CREATE FOREIGN TABLE {{t}} ({COLUMNS}) SERVER elsewhere", "FOREIGN TABLE"),
    "a sequence": ("CREATE SEQUENCE {t}", "SEQUENCE"),
}


@pytest.mark.parametrize("kind", OTHERS)
async def test_something_else_under_the_name_is_left_where_it_is(kind: str, bare: Live) -> None:
    if kind == "a foreign table":
        bare.execute("CREATE FOREIGN DATA WRAPPER nothing", "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing")
    statement, dropped = OTHERS[kind]
    bare.execute(statement)
    try:
        [difference] = await bare.differences()
        assert difference.problem.startswith(f"it is {kind}, and has to be an ordinary table")
        assert "It may hold messages, so nothing is printed that moves it" in difference.problem
        with pytest.raises(SchemaMismatch) as caught:
            await validate_schema(bare.engine, bare.outbox)
        assert all(line.startswith("--") for line in str(caught.value).splitlines()[1:])
    finally:
        bare.execute(f"DROP {dropped} {{t}}", "DROP FOREIGN DATA WRAPPER IF EXISTS nothing CASCADE")


@pytest.mark.parametrize(
    ("timing", "problems"),
    [
        ("BEFORE INSERT ON {t} FOR EACH ROW", ["the trigger mine may drop rows, for its function has RETURN NULL"]),
        (
            "BEFORE UPDATE OR DELETE ON {t} FOR EACH ROW",
            ["the trigger mine may drop rows, for its function has RETURN NULL"],
        ),
        ("AFTER INSERT ON {t} FOR EACH ROW", []),
        ("BEFORE INSERT ON {t} FOR EACH STATEMENT", []),
    ],
)
async def test_a_trigger_that_may_drop_rows(timing: str, problems: list[str], live: Live) -> None:
    live.execute(
        "CREATE FUNCTION {s}.drop_it() RETURNS trigger LANGUAGE plpgsql"
        " AS $$BEGIN IF random() < 0 THEN RETURN  null; END IF; RETURN NEW; END$$",
        f"CREATE TRIGGER mine {timing} EXECUTE FUNCTION {{s}}.drop_it()",
    )
    found = [(item.problem.split(":")[0], item.fix) for item in await live.differences()]
    assert found == [(problem, "") for problem in problems]
    live.execute("ALTER TABLE {t} DISABLE TRIGGER mine")
    assert await live.differences() == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("CREATE RULE mine AS ON DELETE TO {t} DO INSTEAD NOTHING", "the rule mine does something INSTEAD: "),
        ("CREATE TABLE {s}.child () INHERITS ({t})", 'tables inherit from it ("Drift S".child)'),
        (
            "ALTER TABLE {t} ADD CONSTRAINT mine UNIQUE (message_id) DEFERRABLE",
            "the constraint mine is DEFERRABLE: ",
        ),
    ],
)
async def test_what_else_keeps_rows_back(statement: str, problem: str, live: Live) -> None:
    live.execute(statement)
    [difference] = await live.differences()
    assert (difference.problem[: len(problem)], difference.fix) == (problem, "")


@pytest.fixture
def role(live: Live) -> Iterator[str]:
    """A role that may do everything with the table, and owns nothing."""
    name = f"outbox_worker_{live.engine.url.database}"
    live.execute(f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name}", f"GRANT USAGE ON SCHEMA {{s}} TO {name}")
    live.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{t}} TO {name}")
    yield name
    live.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("policies", "hides"),
    [
        ([], True),
        (["FOR ALL TO PUBLIC USING (queue = 'mine')"], True),
        (["FOR SELECT TO PUBLIC USING (true)"], True),
        (["FOR ALL TO PUBLIC USING (true)"], False),
        (["FOR ALL TO {role} USING (true) WITH CHECK (true)"], False),
        (["FOR ALL TO PUBLIC USING (true)", "AS RESTRICTIVE FOR ALL TO PUBLIC USING (queue = 'mine')"], True),
    ],
)
async def test_row_level_security_that_hides_rows(policies: list[str], hides: bool, role: str, live: Live) -> None:
    live.execute("ALTER TABLE {t} ENABLE ROW LEVEL SECURITY")
    live.execute(*(f"CREATE POLICY p{n} ON {{t}} {policy.format(role=role)}" for n, policy in enumerate(policies)))
    async with live.engine.begin() as connection:
        as_owner = await find_differences(connection, live.outbox)
        await connection.execute(text(f"SET LOCAL ROLE {role}"))
        as_worker = await find_differences(connection, live.outbox)
    assert as_owner == []
    assert [item.problem.split(":")[0] for item in as_worker] == (
        [f"row level security is active for the role {role}"] if hides else []
    )
    assert all(not item.fix for item in as_worker)


@pytest.fixture
def log(bare: Live) -> LogTables:
    """The tables of a log."""
    tables = make_log_tables(bare.metadata, "events")
    bare.metadata.create_all(bare.builder, tables=tables.all)
    return tables


async def test_tables_of_a_log_are_looked_at_alike(log: LogTables, bare: Live) -> None:
    await validate_log_schema(bare.engine, log)
    bare.execute(
        "CREATE RULE mine AS ON DELETE TO {s}.events_deferred DO INSTEAD NOTHING",
        "ALTER TABLE {s}.events_head ALTER drawn SET GENERATED ALWAYS",
        "ALTER TABLE {s}.events_members DROP CONSTRAINT events_members_pkey,"
        " ADD PRIMARY KEY (consumer_group, uri, member) DEFERRABLE",
        "ALTER TABLE {s}.events_offsets DROP CONSTRAINT events_offsets_slots_ck, ADD CHECK"
        " (lo >= 0 AND lo <= hi AND hi <= 255) NOT VALID",
    )
    differences = await find_log_differences(bare.engine, log)
    assert [(item.where, bool(item.fix)) for item in differences] == [
        ('"Drift S".events_head.drawn', True),
        ('"Drift S".events_offsets', True),
        ('"Drift S".events_members', True),
        ('"Drift S".events_deferred', False),
    ]
    bare.repair(differences)
    [left] = await find_log_differences(bare.engine, log)
    assert left.problem.startswith("the rule mine")


@pytest.mark.parametrize("partitioned", [False, True])
async def test_missing_tables_of_a_log_are_created_by_the_fix(partitioned: bool, bare: Live) -> None:
    tables = make_log_tables(bare.metadata, "events", partitioned=partitioned)
    bare.repair(await find_log_differences(bare.engine, tables))
    assert await find_log_differences(bare.engine, tables) == []
    other = make_log_tables(MetaData(schema="Drift S"), "events", partitioned=not partitioned)
    [difference] = await find_log_differences(bare.engine, other)
    assert f"say partitioned={partitioned} to make_log_tables" in difference.problem


async def test_a_head_that_draws_no_numbers(log: LogTables, bare: Live) -> None:
    bare.execute("ALTER TABLE {s}.events_head ALTER drawn DROP IDENTITY")
    differences = await find_log_differences(bare.engine, log)
    assert [item.problem for item in differences] == ["nothing numbers it: publishing would fail"]
    bare.repair(differences)
    assert await find_log_differences(bare.engine, log) == []


FORMER_LOG = (
    'CREATE TABLE {s}.outbox ("position" bigserial, uri varchar(255) NOT NULL, payload jsonb NOT NULL,'
    " metadata jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    ' transaction_id xid8 NOT NULL, PRIMARY KEY (transaction_id, "position"))',
    "CREATE TABLE {s}.outbox_offsets (consumer_group varchar(255) NOT NULL, uri varchar(255) NOT NULL DEFAULT '',"
    " offset_acked bigint NOT NULL DEFAULT 0, last_processed_transaction_id xid8 NOT NULL DEFAULT '0',"
    " updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (consumer_group, uri))",
)


async def test_a_log_of_transactions_and_positions_is_left_as_it_is(bare: Live) -> None:
    bare.execute(*FORMER_LOG)
    metadata = MetaData(schema="Drift S")
    tables = make_log_tables(metadata)
    differences = {item.where: item for item in await find_log_differences(bare.engine, tables)}
    log, offsets = differences['"Drift S".outbox'], differences['"Drift S".outbox_offsets']
    assert (log.fix, offsets.fix) == ("", "")
    assert log.problem.startswith("it lacks slot, and what rows from before have there cannot be known")
    assert "it is another table: it lacks lo, hi," in offsets.problem
    [as_queue] = await find_differences(bare.engine, make_outbox_table(MetaData(schema="Drift S")))
    assert as_queue.problem.startswith("it is another table: it lacks id, queue,")
    assert as_queue.fix == ""
