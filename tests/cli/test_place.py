"""Where a command works: addresses with any driver, applications, names of tables."""

import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from faststream_outbox import Envelope
from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.place import make_engine
from faststream_outbox.log import Outbox
from tests.cases import case
from tests.cli.stage import Stage

APP = """
from faststream import FastStream
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import Inbox, OutboxBroker, make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import OutboxClient

metadata = MetaData()
engine = create_async_engine({dsn!r})
table, dlq = make_outbox_table(metadata), make_dlq_table(metadata)
log_tables = make_log_tables(metadata, "outbox_log")
broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq, log_tables=log_tables)
app = FastStream(broker)
client = OutboxClient(engine, table, dlq_table=dlq)
outbox = Outbox(engine, tables=log_tables)
inbox = Inbox(engine, make_inbox_table(metadata), consumer="billing")
without = OutboxBroker(outbox_table=table, dlq_table=None)
number = 1


class Transport:
    name = "paper"
    async def start(self): ...
    async def stop(self): ...
    async def send(self, messages): ...


broker.relay("orders", to=Transport())
broker.relay(topic="shop", group="to-paper", to=Transport(), name="papers")
"""


@pytest.fixture
def given(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """An application in the current directory."""
    dsn = stage.url.render_as_string(hide_password=False)
    (tmp_path / "cli_given.py").write_text(APP.format(dsn=dsn))
    (tmp_path / "cli_broken.py").write_text("\n\nraise ValueError('no [b]settings[/b]')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "cli_given", raising=False)
    return stage


def test_an_address_may_name_any_driver(stage: Stage) -> None:
    stage.bury(1)
    for driver in ("", "+asyncpg", "+psycopg", "+psycopg2", "+psycopg_async", "+x"):
        for scheme in ("postgresql", "postgres"):
            dsn = stage.url.set(drivername=scheme + driver).render_as_string(hide_password=False)
            with case(dsn):
                assert len(stage.json("dead", "list", "--dsn", dsn)) == 1


def test_the_driver_that_is_named_is_taken_if_it_will_do() -> None:
    drivers = {"postgresql+psycopg": "psycopg", "postgresql": "asyncpg", "postgres+pg8000": "asyncpg"}
    for scheme, driver in drivers.items():
        with case(scheme):
            assert make_engine(f"{scheme}://host/app").dialect.driver == driver


def test_an_address_may_have_the_options_of_libpq(stage: Stage) -> None:
    for scheme in ("postgresql+asyncpg", "postgresql+psycopg"):
        url = make_url(stage.dsn).set(drivername=scheme)
        url = url.update_query_dict({"sslmode": "prefer", "connect_timeout": "5"})
        with case(scheme):
            stage.run("dead", "list", "--dsn", url.render_as_string(hide_password=False))


def test_what_is_no_address_is_refused_without_being_repeated() -> None:
    for text in ("mysql://me:secret@host/x", "secret", "postgresql://[secret", ""):
        with case(text), pytest.raises(Refusal) as refused:
            make_engine(text)
        assert "secret" not in str(refused.value)


def test_a_database_that_cannot_be_reached_is_an_exit_code_of_its_own(stage: Stage) -> None:
    nowhere = "postgresql://me:secret@127.0.0.1:1/app"
    for scheme in ("postgresql+asyncpg", "postgresql+psycopg"):
        printed = stage.run("status", dsn=nowhere.replace("postgresql", scheme), code=3)
        assert "cannot be reached" in printed.err
        assert "secret" not in printed.said
    unknown = stage.url.set(drivername="postgresql", database="nobody").render_as_string(hide_password=False)
    assert "nobody" in stage.run("queues", dsn=unknown, code=3).err
    document = stage.run("queues", "--json", dsn=nowhere, code=3).document
    assert (document["data"], document["exit_code"]) == (None, 3)


def test_without_an_address_the_command_asks_for_one(stage: Stage) -> None:
    assert "OUTBOX_DSN" in stage.run("status", dsn="", code=2).err
    assert "one of them" in stage.run("status", "--dsn", "x", "--app", "y:z", code=2).err


def test_options_may_stand_before_the_command(stage: Stage) -> None:
    stage.bury(1)
    assert len(stage.run("--dsn", stage.dsn, "--json", "dead", "list", dsn="").data) == 1
    assert stage.run("--version").out.startswith("1.")


class TestTables:
    def test_that_are_named_must_exist(self, stage: Stage) -> None:
        assert "did you mean 'outbox'?" in stage.run("peek", "orders", "--table", "outbux", code=4).err
        assert "'outbox_dlq'" in stage.run("dead", "list", "--dlq-table", "outbox_dl", code=4).err
        assert "no table" in stage.run("dead", "list", "--schema", "nobody", "--dlq-table", "outbox_dlq", code=4).err

    def test_of_another_name_or_schema_are_found(self, stage: Stage) -> None:
        stage.bury(2)
        with stage.schema("cli_other"):
            stage.sql("create table cli_other.messages (like outbox including all)")
            stage.sql("create table cli_other.buried (like outbox_dlq including all)")
            where = ["--schema", "cli_other", "--table", "messages", "--dlq-table", "buried"]
            assert stage.json("dead", "list", *where) == []

    def test_that_are_missing_are_asked_for(self, stage: Stage) -> None:
        with stage.renamed("outbox_dlq"):
            assert "--dlq-table" in stage.run("dead", "list", code=2).err

    def test_of_something_else_are_not_taken_by_their_name(self, stage: Stage) -> None:
        with stage.renamed("inbox"):
            stage.sql("create table inbox (mails text)")
            try:
                assert "--inbox" in stage.run("inbox", "list", code=2).err
            finally:
                stage.sql("drop table inbox")

    def test_of_a_log_may_be_called_outbox(self, stage: Stage) -> None:
        """As an `Outbox` calls it that was given no name."""
        stage.sql("drop table outbox")
        stage.working(lambda engine: Outbox(engine).setup())
        try:
            assert stage.json("parked", "list") == []
            assert "--table" in stage.run("peek", "orders", code=2).err
        finally:
            for name in ("", "_head", "_gaps", "_ticks", "_offsets", "_members", "_deferred"):
                stage.sql(f"drop table outbox{name} cascade")
            with stage.builder.begin() as connection:
                stage.table.create(connection)

    def test_that_are_not_as_needed_are_explained(self, stage: Stage) -> None:
        stage.sql("alter table outbox_dlq rename column key to clef")
        assert "schema check" in stage.run("dead", "list", code=5).err


class TestApp:
    def test_brings_its_engine_and_tables(self, given: Stage) -> None:
        given.bury(1)
        for name in ("broker", "app", "client"):
            with case(name):
                printed = given.run("dead", "list", "--json", "--app", f"cli_given:{name}", dsn="")
                assert len(printed.data) == 1
        assert given.run("parked", "list", "--json", "--app", "cli_given:outbox", dsn="").data == []
        assert given.run("inbox", "list", "--json", "--app", "cli_given:inbox", dsn="").data["consumers"] == []

    def test_has_relays(self, given: Stage) -> None:
        out = given.run("relay", "--app", "cli_given:app", dsn="").out
        assert [line.split()[:1] for line in out.splitlines()[:3]] == [["relay"], ["relay"], ["papers"]]
        assert out.splitlines()[0].split()[-4:] == ["circuit", "in", "flight", "oldest"]
        found = given.run("relay", "--json", "--app", "cli_given:broker", dsn="").data
        assert [(each["reads"], each["group"], each["sends_to"]) for each in found] == [
            (["orders"], None, ["paper"]),
            (["shop"], "to-paper", ["paper"]),
        ]

    def test_knows_how_old_what_is_not_relayed_is(self, given: Stage) -> None:
        given.publish(Envelope(queue="orders", body=b"1"))
        given.sql("update outbox set next_attempt_at = now() - interval '90 seconds'")
        printed = given.run("relay", "--app", "cli_given:app", dsn="")
        assert printed.out.splitlines()[1].split()[-5:-1] == ["paper", "-", "-", "1m"]
        assert "faststream_outbox_relay_up" in printed.out
        of_queue, of_group = given.run("relay", "--json", "--app", "cli_given:app", dsn="").data
        (status,) = of_queue["status"]
        assert (status["circuit"], status["in_flight"], status["error"]) == ("stopped", 0, None)
        assert 90 <= status["oldest_seconds"] < 900
        assert [each["oldest_seconds"] for each in of_group["status"]] == [0.0]

    def test_is_needed_for_relays(self, stage: Stage) -> None:
        assert "--app module:broker" in stage.run("relay", code=2).err

    def test_that_is_not_there_is_refused(self, given: Stage) -> None:
        for reference, said in (
            ("cli_given:brokr", "did you mean 'broker'?"),
            ("cli_given", "module:name"),
            ("cli_nobody:broker", "No module named 'cli_nobody'"),
            ("cli_given:number", "is a int"),
            ("cli_given:without", "without an engine"),
            ("cli_broken:app", "no [b]settings[/b]"),
            ("cli_broken:app", "line 3"),
        ):
            with case(reference):
                assert said in given.run("status", "--app", reference, dsn="", code=2).err
