"""Dead letters on the command line: find, group, show, replay, edit, purge."""

import pytest

from tests.cases import case
from tests.cli.stage import Stage


class TestList:
    def test_shows_the_newest_first(self, stage: Stage) -> None:
        stage.bury(3)
        printed = stage.run("dead", "list")
        lines = printed.out.splitlines()
        assert lines[0].split() == ["id", "queue", "failed", "reason", "error", "message", "attempts", "key", "body"]
        assert [line.split()[0] for line in lines[1:]] == ["3", "2", "1"]
        assert '{"order": 3}' in lines[1]

    def test_gives_everything_as_json(self, stage: Stage) -> None:
        stage.bury(3)
        found = stage.json("dead", "list", "--limit", "2")
        assert [letter["id"] for letter in found] == [3, 2]
        assert found[0]["payload"] == {"encoding": "utf-8", "value": '{"order": 3}'}
        assert found[0]["headers"] == {"source": "shop"}
        assert found[0]["failed_at"].endswith("+00:00")

    def test_is_narrowed_by_what_is_given(self, stage: Stage) -> None:
        stage.bury(4)
        stage.bury(2, queue="mails", error="KeyError")
        for given, expected in (
            (["--queue", "mails"], 2),
            (["--error", "ValueError"], 4),
            (["--key", "customer-0"], 3),
            (["--id", "1", "--id", "2"], 2),
            (["--since", "150s"], 4),
            (["--until", "150s"], 2),
            (["--reason", "retry_terminal", "-q", "orders"], 4),
            (["--before", "3"], 2),
        ):
            with case(given):
                assert len(stage.json("dead", "list", *given)) == expected

    def test_of_none_is_no_failure(self, stage: Stage) -> None:
        assert stage.run("dead", "list").out == "No dead letter matches.\n"

    def test_of_a_selection_without_any_says_so_to_scripts(self, stage: Stage) -> None:
        stage.bury()
        assert stage.json("dead", "list", "--key", "nobody", code=4) == []

    def test_knows_the_queue_and_the_error_that_were_meant(self, stage: Stage) -> None:
        stage.bury()
        assert "did you mean 'orders'?" in stage.run("dead", "list", "-q", "ordres", code=4).err
        assert "did you mean 'ValueError'?" in stage.run("dead", "list", "--error", "ValeuError", code=4).err


def test_groups_count_what_failed_alike(stage: Stage) -> None:
    stage.bury(2)
    stage.bury(3, queue="mails", error="KeyError")
    rows = [line.split()[:4] for line in stage.run("dead", "groups").out.splitlines()]
    assert rows[1:] == [["3", "mails", "retry_terminal", "KeyError"], ["2", "orders", "retry_terminal", "ValueError"]]
    assert [group["count"] for group in stage.json("dead", "groups", "orders")] == [2]
    assert "did you mean 'mails'?" in stage.run("dead", "groups", "mail", code=4).err


class TestShow:
    def test_has_the_error_the_headers_and_the_body_to_read(self, stage: Stage) -> None:
        stage.bury(1)
        out = stage.run("dead", "show", "1").out
        assert "traceback\n  Traceback: 1\n" in out
        assert 'headers\n  {\n    "source": "shop"\n  }\n' in out
        assert 'body\n  {\n    "order": 1\n  }\n' in out
        assert stage.json("dead", "show", "1")["error_message"] == "number 1"

    def test_of_none_is_nothing(self, stage: Stage) -> None:
        assert "No dead letter 7" in stage.run("dead", "show", "7", code=4).err


class TestReplay:
    def test_shows_what_would_happen(self, stage: Stage) -> None:
        stage.bury(3)
        printed = stage.run("dead", "replay", "--all", "--dry-run")
        assert printed.out.startswith("Would go back\ncount  queue")
        assert stage.json("dead", "replay", "-q", "orders", "--dry-run")["selected"] == 3
        assert stage.dead() == 3

    def test_asks_and_goes_on_only_if_told_to(self, stage: Stage, at_terminal: None) -> None:
        stage.bury(3)
        assert "Nothing is done." in stage.run("dead", "replay", "--all", code=1, input="n\n").out
        assert stage.dead() == 3
        printed = stage.run("dead", "replay", "--all", input="y\n")
        assert "Put 3 dead letters back?" in printed.err
        assert "3 dead letters went back, of 3." in printed.out
        assert stage.dead() == 0

    def test_without_a_terminal_wants_to_be_told(self, stage: Stage) -> None:
        stage.bury(1)
        assert "--yes" in stage.run("dead", "replay", "--all", code=2).err
        assert stage.json("dead", "replay", "--all", "--yes", "--rate", "1000") == {
            "selected": 1,
            "replayed": 1,
            "conflicts": [],
        }
        assert stage.sql("select id, queue from outbox") == [(1001, "orders")]

    def test_needs_to_know_which(self, stage: Stage) -> None:
        stage.bury(1)
        assert "selects every dead letter" in stage.run("dead", "replay", "--yes", code=2).err

    def test_of_nothing_is_nothing(self, stage: Stage) -> None:
        stage.bury(1)
        assert "did you mean 'orders'?" in stage.run("dead", "replay", "-q", "order", "--yes", code=4).err
        assert "No dead letter matches." in stage.run("dead", "replay", "--id", "9", "--yes", code=4).err

    def test_reports_what_could_not_go_back(self, stage: Stage) -> None:
        stage.bury(2)
        stage.sql("insert into outbox (id, queue, payload) values (1001, 'orders', '')")
        printed = stage.run("dead", "replay", "--all", "--yes", code=1)
        assert "1 dead letter could not" in printed.out


class TestPurge:
    def test_deletes_after_asking(self, stage: Stage, at_terminal: None) -> None:
        stage.bury(3)
        assert "Would be deleted" in stage.run("dead", "purge", "--id", "1", "--dry-run").out
        printed = stage.run("dead", "purge", "--id", "1", input="y\n")
        assert ("Delete 1 dead letter for good?" in printed.err, "1 dead letter deleted." in printed.out) == (
            True,
            True,
        )
        assert stage.dead() == 2

    def test_is_told_to_by_scripts(self, stage: Stage) -> None:
        stage.bury(3)
        assert stage.json("dead", "purge", "--all", "--yes", "--rate", "1000") == {"selected": 3, "purged": 3}
        stage.bury(1)
        assert "--yes" in stage.run("dead", "purge", "--all", code=2).err


class TestEdit:
    def test_takes_the_body_and_the_headers(self, stage: Stage) -> None:
        stage.bury(2)
        done = stage.json("dead", "edit", "1", "--payload", "new", "--headers", '{"by": "me"}', "--yes")
        assert done == {"edited": True, "replay": {"selected": 1, "replayed": 1, "conflicts": []}}
        assert stage.sql("select convert_from(payload, 'UTF8'), headers from outbox") == [("new", {"by": "me"})]

    def test_can_leave_it_dead(self, stage: Stage) -> None:
        stage.bury(1)
        stage.run("dead", "edit", "1", "--payload-file", "-", "--no-replay", "--yes", input="from a pipe")
        assert stage.sql("select convert_from(payload, 'UTF8') from outbox_dlq") == [("from a pipe",)]

    def test_opens_the_editor(self, stage: Stage, monkeypatch: pytest.MonkeyPatch, at_terminal: None) -> None:
        stage.bury(1)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", "sed -i s/1/100/")
        printed = stage.run("dead", "edit", "1", input="y\n")
        assert 'new body\n  {\n    "order": 100\n  }' in printed.out
        # Indented for the editor only.
        assert stage.sql("select convert_from(payload, 'UTF8') from outbox") == [('{"order":100}',)]

    def test_of_an_editor_that_changed_nothing_does_nothing(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.bury(1)
        monkeypatch.delenv("VISUAL", raising=False)
        for editor, code, said in (("true", 1, "Nothing is changed"), ("false", 2, "ended with 1"), ("", 2, "EDITOR")):
            with case(editor):
                monkeypatch.setenv("EDITOR", editor)
                assert said in stage.run("dead", "edit", "1", "--yes", code=code).said
        monkeypatch.setenv("EDITOR", "sed -i s/{//")
        assert "none any more" in stage.run("dead", "edit", "1", "--yes", code=2).err
        assert stage.dead() == 1

    def test_keeps_a_text_without_a_line_break_at_its_end(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        stage.bury(1)
        stage.sql("update outbox_dlq set payload = convert_to('plain', 'UTF8')")
        monkeypatch.delenv("VISUAL", raising=False)
        # As editors do: the last line ends.
        monkeypatch.setenv("EDITOR", "sed -i -e s/plain/other/ -e '$a\\'")
        stage.run("dead", "edit", "1", "--yes")
        assert stage.sql("select convert_from(payload, 'UTF8') from outbox") == [("other",)]

    def test_refuses_what_cannot_be(self, stage: Stage) -> None:
        stage.bury(1)
        stage.sql("update outbox_dlq set payload = '\\xff'")
        for given, said in (
            (["--headers", "no"], "no JSON"),
            (["--headers", "[1]"], "JSON object"),
            (["--payload", "a", "--payload-file", "b"], "one of them"),
            (["--payload-file", "/nonexistent"], "cannot be read"),
            ([], "--payload-file"),
        ):
            with case(given):
                assert said in stage.run("dead", "edit", "1", *given, "--yes", code=2).err
        stage.run("dead", "edit", "99", "--payload", "x", "--yes", code=4)
