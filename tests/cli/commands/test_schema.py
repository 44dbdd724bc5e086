"""The tables on the command line: printed, checked, repaired."""

import pytest

from tests.cases import case
from tests.cli.stage import Stage


class TestPrint:
    def test_needs_no_database(self, stage: Stage) -> None:
        out = stage.run("schema", "print", dsn="").out
        for table in ("outbox", "outbox_dlq", "outbox_log", "outbox_log_head", "inbox"):
            assert f"CREATE TABLE {table} (" in out

    def test_makes_tables_that_pass_the_check(self, stage: Stage) -> None:
        ddl = stage.json("schema", "print", "--schema", "cli_made", "--autovacuum")
        try:
            for statement in ddl:
                stage.sql(statement.replace(":", r"\:"))
            names = ["--table", "outbox", "--dlq-table", "outbox_dlq", "--log", "outbox_log", "--inbox", "inbox"]
            assert stage.json("schema", "check", "--schema", "cli_made", "--autovacuum", *names) == []
        finally:
            stage.sql("drop schema cli_made cascade")

    def test_takes_names(self, stage: Stage) -> None:
        ddl = stage.json("schema", "print", "--log", "Events", "--partitioned")
        assert 'CREATE TABLE "Events" (' in ddl[0]
        assert "PARTITION BY RANGE (position)" in ddl[0]
        assert not any("CREATE TABLE outbox" in each for each in ddl)


class TestCheck:
    def test_of_tables_that_are_right(self, stage: Stage) -> None:
        assert stage.run("schema", "check", "--rights").out == "The tables are as this version needs them.\n"
        assert stage.json("schema", "check") == []

    def test_prints_what_repairs_them(self, stage: Stage) -> None:
        stage.sql("drop index outbox_claim_idx")
        printed = stage.run("schema", "check", code=1)
        assert "1 difference from" in printed.out
        assert "CREATE INDEX CONCURRENTLY outbox_claim_idx" in printed.out
        (found,) = stage.json("schema", "check", code=1)
        assert set(found) == {"where", "problem", "fix", "is_fatal"}

    def test_of_an_empty_database_is_nothing(self, stage: Stage) -> None:
        with stage.schema("cli_empty"):
            assert "schema print" in stage.run("schema", "check", "--schema", "cli_empty", code=4).err


class TestUpgrade:
    def test_only_prints(self, stage: Stage) -> None:
        stage.sql("drop index outbox_claim_idx")
        stage.sql("alter table inbox drop column response")
        out = stage.run("schema", "upgrade").out
        assert "ALTER TABLE public.inbox ADD COLUMN response bytea" in out
        assert len(stage.json("schema", "upgrade")["left"]) == 2

    def test_runs_it_after_asking(self, stage: Stage, at_terminal: None) -> None:
        stage.sql("drop index outbox_claim_idx")
        stage.sql("alter table inbox drop column response")
        assert "Nothing is done." in stage.run("schema", "upgrade", "--apply", input="n\n", code=1).out
        printed = stage.run("schema", "upgrade", "--apply", input="y\n")
        assert "2 differences repaired." in printed.out
        assert "There is nothing to repair." in stage.run("schema", "upgrade", "--apply").out

    def test_makes_what_is_named_and_missing(self, stage: Stage) -> None:
        for driver in ("postgresql+asyncpg", "postgresql+psycopg"):
            dsn = stage.url.set(drivername=driver).render_as_string(hide_password=False)
            where = ["--schema", "cli_new", "--table", "50%", "--dlq-table", "50%_dlq", "--dsn", dsn]
            with case(driver), stage.schema("cli_new"):
                done = stage.json("schema", "upgrade", "--apply", "--yes", *where)
                assert (len(done["differences"]), done["left"]) == (2, [])

    def test_without_a_terminal_wants_to_be_told(self, stage: Stage) -> None:
        stage.sql("drop index outbox_claim_idx")
        assert "--yes" in stage.run("schema", "upgrade", "--apply", code=2).err

    def test_says_what_is_left_to_people(self, stage: Stage) -> None:
        stage.sql("drop index outbox_claim_idx")
        stage.sql("create rule nothing as on insert to inbox do instead nothing")
        done = stage.json("schema", "upgrade", "--apply", "--yes", code=1)
        assert (len(done["differences"]), len(done["left"])) == (2, 1)
        assert stage.json("schema", "upgrade", "--apply", "--yes", code=1)["left"] == done["left"]

    @pytest.mark.slow
    def test_gives_up_a_lock_that_others_hold(self, stage: Stage) -> None:
        """Whoever comes next would wait behind it."""
        stage.sql("alter table inbox drop column response")
        with stage.builder.connect() as other, other.begin():
            other.exec_driver_sql("lock table inbox in access share mode")
            assert "lock timeout" in stage.run("schema", "upgrade", "--apply", "--yes", code=5).err
