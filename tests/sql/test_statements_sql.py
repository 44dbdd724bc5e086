"""The loader of named statements: their names, descriptions, parameters, and the names that are filled in."""

import re
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal import sql as package
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.schema.log_tables import LogNames, make_log_tables
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import doctor_rows, inbox_rows, log_rows, overview_rows, queue_rows
from faststream_outbox._internal.sql import statements as module
from faststream_outbox._internal.sql.statements import Statement, statements
from faststream_outbox.errors import InvalidOption
from faststream_outbox.overview import fetch_unprocessed
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from tests.cases import each

NAMES = Names(table="outbox", dead="outbox_dlq", channel="outbox_outbox")
LOG_NAMES = LogNames.of(make_log_tables(MetaData()))
OF_THE_LOG = ("deferred", "doctor_log", "group", "group_admin", "log", "overview_log", "position", "retention", "tick")
BARE = Names(table="outbox", dead=None, channel="outbox_outbox")
FILES = sorted(file.name for file in resources.files(package).iterdir() if file.name.endswith(".sql"))
HEADINGS = {
    file: re.findall(r"^-- name: (\w+)$", resources.files(package).joinpath(file).read_text(), re.MULTILINE)
    for file in FILES
}
ALL = [(file.removesuffix(".sql"), name) for file, names in HEADINGS.items() for name in names]
SHAPES = {**queue_rows.SHAPES, **log_rows.SHAPES, **inbox_rows.SHAPES, **overview_rows.SHAPES, **doctor_rows.SHAPES}


def compiled(body: str) -> Statement:
    return module._compiled("name", "Description.", body, BARE)


@each(("file", "name"), ALL)
def test_statement_is_named_described_and_filled(file: str, name: str) -> None:
    statement = statements(file, LOG_NAMES if file in OF_THE_LOG else NAMES)[name]
    assert statement.name == name
    assert statement.description.endswith(".")
    assert "{" not in statement.dollar.replace("'{}'", "")
    for parameter in statement.parameters:
        assert f"%({parameter})s" in statement.pyformat
    assert len(set(re.findall(r"\$\d+", statement.dollar))) == len(statement.parameters)
    assert "/*" not in statement.dollar


@each("file", FILES)
def test_names_in_a_file_are_unique(file: str) -> None:
    assert len(set(HEADINGS[file])) == len(HEADINGS[file])


@each(
    ("body", "dollar", "pyformat", "parameters"),
    [
        ("select :b, :a, :b", "select $1, $2, $1", "select %(b)s, %(a)s, %(b)s", ("b", "a")),
        (
            "select :a::text::jsonb, '1'::int, x::timestamptz[]",
            "select $1::text::jsonb, '1'::int, x::timestamptz[]",
            "select %(a)s::text::jsonb, '1'::int, x::timestamptz[]",
            ("a",),
        ),
        ("select 10 % 3, :a", "select 10 % 3, $1", "select 10 %% 3, %(a)s", ("a",)),
    ],
)
def test_parameters_are_numbered_and_named_and_nothing_else_is_touched(
    body: str, dollar: str, pyformat: str, parameters: tuple[str, ...]
) -> None:
    statement = compiled(body)
    assert (statement.dollar, statement.pyformat, statement.parameters) == (dollar, pyformat, parameters)


def test_arguments_are_in_the_order_of_the_numbers_and_a_missing_one_is_an_error() -> None:
    assert compiled("select :b, :a, :b").arguments({"a": 1, "b": 2, "c": 3}) == (2, 1)
    with pytest.raises(KeyError, match="b"):
        compiled("select :a, :b").arguments({"a": 1})


@given(st.lists(st.sampled_from(["a", "b", "long_name", "c"]), max_size=8))
def test_both_styles_have_the_same_parameters(names: list[str]) -> None:
    statement = compiled("select " + ", ".join(f":{name}" for name in names))
    values = {name: f"<{name}>" for name in names}
    by_number = dict(enumerate(statement.arguments(values), start=1))
    dollar = re.sub(r"\$(\d+)", lambda match: by_number[int(match[1])], statement.dollar)
    assert dollar == statement.pyformat % values


def test_dead_letter_part_is_there_with_the_table_only() -> None:
    with_dead = statements("keys", NAMES)["claim_keys"].dollar
    without = statements("keys", BARE)["claim_keys"].dollar
    assert "outbox_dlq" in with_dead
    assert "outbox_dlq" not in without
    assert "dead" not in without.replace("held_by_dead", "")


def test_a_name_that_looks_like_the_place_of_another_is_a_name() -> None:
    statement = statements("settle", Names(table='"{dead}"', dead='"{table}"', channel="c"))["settle_dead"]
    assert statement.dollar.count('insert into "{table}"') == 1
    assert statement.dollar.count('delete from "{dead}"') == 1
    assert statement.pyformat.count('insert into "{table}"') == 1


def test_statement_that_needs_the_dead_letters_says_so() -> None:
    with pytest.raises(InvalidOption, match="dlq_table=make_dlq_table"):
        statements("settle", BARE)["settle_dead"]


def test_unknown_statement_is_an_error() -> None:
    with pytest.raises(KeyError):
        statements("claim", NAMES)["no_such_statement"]


def test_statements_of_the_same_names_are_the_same_object() -> None:
    assert statements("claim", NAMES) is statements("claim", Names("outbox", "outbox_dlq", "outbox_outbox"))
    assert statements("claim", NAMES) is not statements("claim", BARE)


@pytest.mark.parametrize("name", ["my outbox", 'out"box', "100%", ":queue", "a:b::c", "%(queue)s", "$1", "Ω", "{dead}"])
async def test_awkward_table_names_work(name: str, driver_engine: AsyncEngine) -> None:
    table: Table = make_outbox_table(MetaData(), name)
    async with driver_engine.connect() as connection:
        await connection.run_sync(table.create)
        await publish(connection, table, Envelope(queue="orders", body=b"one"))
        await publish(connection, table, Envelope(queue="orders", body=b"two"), Envelope(queue="orders", body=b"three"))
        assert len(await fetch_unprocessed(connection, table)) == 3
        await connection.rollback()


async def test_every_statement_is_understood_by_the_server_and_its_shape_has_its_columns(engine: AsyncEngine) -> None:
    metadata = MetaData()
    names = Names.of(make_outbox_table(metadata), make_dlq_table(metadata))
    log_names = LogNames.of(make_log_tables(metadata, "understood"))
    inbox_names = Names.of(make_inbox_table(metadata))
    columns: dict[tuple[str, str], tuple[str, ...]] = {}
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        for file, name in ALL:
            of_file = log_names if file in OF_THE_LOG else inbox_names if file == "inbox" else names
            prepared = await driver.prepare(statements(file, of_file)[name].dollar)
            columns[file, name] = tuple(column.name for column in prepared.get_attributes())
        await connection.rollback()
    # A statement of one column has nothing to confuse.
    assert {place: found for place, found in columns.items() if len(found) > 1} == {
        place: shape._fields for place, shape in SHAPES.items()
    }
