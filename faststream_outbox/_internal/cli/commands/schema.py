"""`schema print`, `schema check` and `schema upgrade`: the tables as this version needs them."""

from collections.abc import Sequence
from typing import Annotated

import typer
from sqlalchemy import create_mock_engine
from sqlalchemy.sql.ddl import ExecutableDDLElement

from faststream_outbox._internal.cli.asking import agreed
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Block, Exit, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Yes
from faststream_outbox._internal.cli.place import USUAL, Names, Where, described, find, is_partitioned
from faststream_outbox._internal.schema.autovacuum import outbox_autovacuum_ddl
from faststream_outbox._internal.schema.check import (
    find_differences,
    find_inbox_differences,
    find_log_differences,
    printed,
)
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.names import DIALECT, quoted
from faststream_outbox._internal.text import counted

LOCK_SECONDS = 5
"""How long an ALTER waits for its lock: everybody else waits behind it meanwhile."""
Autovacuum = Annotated[bool, typer.Option("--autovacuum", help="The vacuum settings of the queues' table too.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    schema = typer.Typer(no_args_is_help=True, help="The tables, as this version needs them.")
    command(schema, "print", needs="nothing")(print_ddl)
    command(schema, needs="engine")(check)
    command(schema, needs="engine")(upgrade)
    app.add_typer(schema, name="schema")


async def print_ddl(
    where: Where,
    autovacuum: Autovacuum = False,
    partitioned: Annotated[bool, typer.Option("--partitioned", help="A log that consists of partitions.")] = False,
) -> Answer:
    """The SQL that makes the tables: those that are named, or all; needs no database."""
    said = Names(where.table, where.dlq_table, where.log, where.inbox)
    names = said if any(said) else USUAL
    ddl = _ddl(described(names, where, partitioned=partitioned), where.schema)
    if autovacuum and names.table is not None:
        ddl += [
            line.strip().rstrip(";") for line in outbox_autovacuum_ddl(names.table, schema=where.schema).split("\n")
        ]
    text = "\n\n".join(f"{statement};" for statement in ddl if statement)
    return Answer([statement for statement in ddl if statement], [Said(text)])


async def check(
    here: Here,
    autovacuum: Autovacuum = False,
    rights: Annotated[bool, typer.Option("--rights", help="What this role may do, too.")] = False,
) -> Answer:
    """Whether the tables are as this version needs them; exits with 1 and prints what repairs them if not."""
    found = await _differences(here, await _tables(here), autovacuum=autovacuum, rights=rights)
    if not found:
        return Answer([], [Said("The tables are as this version needs them.", "good")])
    said = Said(f"{counted(len(found), 'difference')} from what this version needs:", "bad")
    return Answer(found, [said, Said(printed(found))], Exit.WRONG)


async def upgrade(
    here: Here,
    autovacuum: Autovacuum = False,
    apply: Annotated[bool, typer.Option("--apply", help="Run it, and not only print it.")] = False,
    yes: Yes = False,
) -> Answer:
    """Print the SQL that repairs the tables; run it only with --apply, after asking."""
    tables = await _tables(here)
    found = await _differences(here, tables, autovacuum=autovacuum)
    if not found:
        return Answer({"differences": [], "left": []}, [Said("There is nothing to repair.", "good")])
    script = printed(found)
    if not apply:
        return Answer({"differences": found, "left": found}, [Said(script)])
    if not any(each.fix for each in found):
        return Answer({"differences": found, "left": found}, [Said(script)], Exit.WRONG)
    if not yes:
        here.printer.plan([Said(script)])
    if not agreed("Run this?", yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    await _apply(here, found)
    left = await _differences(here, tables, autovacuum=autovacuum)
    blocks: list[Block] = [Said(f"{counted(len(found) - len(left), 'difference')} repaired.", "good")]
    if left:
        blocks += [Said(f"{counted(len(left), 'difference')} left:", "warning"), Said(printed(left))]
    return Answer({"differences": found, "left": left}, blocks, Exit.WRONG if left else Exit.FINE)


async def _tables(here: Here) -> Tables:
    """Tables that were named, whether or not they are there; those of the application; and those that are there."""
    where, source = here.where, here.source
    said = Names(where.table, where.dlq_table, where.log, where.inbox)
    async with here.engine.connect() as connection:
        if any(said):
            named = described(said, where, partitioned=await is_partitioned(connection, where.log, where.schema))
            if named.dlq_table is None or named.table is not None:
                return named
            # Dead letters belong to queues, and are checked with them.
            return described(said._replace(table=USUAL.table), where)
        tables = (await find(source, where, connection)).tables
    if tables == Tables():
        msg = (
            "No table of an outbox is here under its usual name. Name those that there should be, as in "
            "--table outbox --dlq-table outbox_dlq; `schema print` has the SQL of all."
        )
        raise Refusal(msg, Exit.NOTHING)
    return tables


async def _differences(
    here: Here, tables: Tables, *, autovacuum: bool = False, rights: bool = False
) -> list[Difference]:
    found: list[Difference] = []
    if tables.table is not None:
        found += await find_differences(
            here.engine, tables.table, tables.dlq_table, check_autovacuum=autovacuum, check_rights=rights
        )
    if tables.log_tables is not None:
        found += await find_log_differences(here.engine, tables.log_tables, check_rights=rights)
    if tables.inbox_table is not None:
        found += await find_inbox_differences(here.engine, tables.inbox_table, check_rights=rights)
    return found


async def _apply(here: Here, differences: Sequence[Difference]) -> None:
    """Run what can be run together in one transaction, and then what cannot."""
    plain = here.engine.execution_options(no_parameters=True)
    async with plain.begin() as connection:
        await connection.exec_driver_sql(f"set local lock_timeout = '{LOCK_SECONDS}s'")
        for each in differences:
            if each.runs_in_transaction:
                for statement in each.fix.splitlines():
                    await connection.exec_driver_sql(statement)
    async with plain.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for each in differences:
            if not each.runs_in_transaction:
                for statement in each.fix.splitlines():
                    await connection.exec_driver_sql(statement)


def _ddl(tables: Tables, schema: str | None) -> list[str]:
    made: list[str] = [] if schema is None else [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"]

    def note(element: ExecutableDDLElement, *_: object, **__: object) -> None:
        compiled = str(element.compile(dialect=DIALECT)).strip()
        made.append("\n".join(line.replace("\t", "    ").rstrip() for line in compiled.splitlines()))

    engine = create_mock_engine("postgresql+psycopg://", note)
    log = () if tables.log_tables is None else tables.log_tables.all
    for table in (tables.table, tables.dlq_table, *log, tables.inbox_table):
        if table is not None:
            table.create(engine, checkfirst=False)
    return made
