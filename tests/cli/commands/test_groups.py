"""Groups and parked messages on the command line."""

from uuid import UUID

import pytest

from faststream_outbox._internal.cli.commands import parked
from faststream_outbox._internal.cli.commands.groups import parsed_place
from faststream_outbox._internal.log.sharing.slots import Cursor
from tests.cases import case
from tests.cli.stage import Stage


class TestSeek:
    def test_shows_where_a_group_would_go(self, stage: Stage) -> None:
        stage.topic()
        out = stage.run("groups", "seek", "billing", "earliest", "--dry-run").out
        assert out.splitlines()[-1].split() == ["would", "go", "to", "0:0"]
        plan = stage.json("groups", "seek", "billing", "latest", "--dry-run")
        assert (plan["uri"], plan["is_done"]) == ("shop", False)

    def test_moves_it_after_asking(self, stage: Stage, at_terminal: None) -> None:
        stage.topic()
        assert "Nothing is done." in stage.run("groups", "seek", "billing", "earliest", input="n\n", code=1).out
        printed = stage.run("groups", "seek", "billing", "earliest", input="y\n")
        assert "handled again" in printed.err
        assert "Group 'billing' stands at 0:0 now." in printed.out

    def test_goes_to_any_place(self, stage: Stage) -> None:
        stage.topic()
        for place in ("earliest", "latest", "2h", "2026-01-01T00:00", "1:1"):
            with case(place):
                assert stage.json("groups", "seek", "billing", place, "--yes")["is_done"] is True

    def test_makes_a_group_only_if_told_to(self, stage: Stage) -> None:
        stage.topic()
        assert "did you mean 'billing'?" in stage.run("groups", "seek", "biling", "latest", "--yes", code=4).err
        assert stage.json("groups", "seek", "biling", "latest", "--yes", "--create")["is_done"] is True

    def test_refuses_what_is_no_place(self, stage: Stage) -> None:
        stage.topic()
        assert "is no place" in stage.run("groups", "seek", "billing", "tomorrow", "--yes", code=2).err
        assert "event_id" in stage.run("groups", "seek", "billing", str(UUID(int=7)), "--yes", code=2).err
        assert "--yes" in stage.run("groups", "seek", "billing", "latest", code=2).err


def test_places_are_read_as_people_write_them() -> None:
    assert parsed_place("latest") == "latest"
    assert parsed_place("12:34") == Cursor(12, 34)
    assert parsed_place(str(UUID(int=5))) == UUID(int=5)


class TestDelete:
    def test_forgets_a_group_after_asking(self, stage: Stage, at_terminal: None) -> None:
        stage.topic(parks=True)
        assert "Nothing is done." in stage.run("groups", "delete", "billing", input="n\n", code=1).out
        printed = stage.run("groups", "delete", "billing", input="y\n")
        assert "Would be forgotten" in printed.out
        assert "1 message that it had deferred" in printed.out

    def test_is_told_to_by_scripts(self, stage: Stage) -> None:
        stage.topic()
        assert "--yes" in stage.run("groups", "delete", "billing", code=2).err
        assert stage.json("groups", "delete", "billing", "--yes") == {"group": "billing", "uri": "shop", "deferred": 0}

    def test_is_refused_while_somebody_reads(self, stage: Stage) -> None:
        stage.topic()
        stage.sql(
            "update outbox_log_offsets set owner = gen_random_uuid(), epoch = epoch + 1, "
            "until = now() + interval '1 hour'"
        )
        assert "is read by somebody" in stage.run("groups", "delete", "billing", "--yes", code=1).err
        stage.run("groups", "delete", "billing", "--yes", "--force")

    def test_wants_to_know_which_of_several(self, stage: Stage) -> None:
        stage.topic()
        stage.run("groups", "seek", "billing", "latest", "--uri", "other", "--create", "--yes")
        printed = stage.run("groups", "delete", "billing", "--yes", code=2)
        assert "--uri 'other' or --uri 'shop'" in printed.err
        stage.run("groups", "delete", "billing", "--uri", "other", "--yes")


class TestParked:
    def test_is_listed_with_its_error(self, stage: Stage) -> None:
        assert stage.run("parked", "list").out == "Nothing waits.\n"
        stage.topic(parks=True, error="no [red]address[/red]")
        out = stage.run("parked", "list", "billing").out
        assert "ValueError  no [red]address[/red]" in out
        (found,) = stage.json("parked", "list", "--state", "all")
        assert (found["group"], found["uri"], found["state"]) == ("billing", "shop", "parked")
        assert stage.json("parked", "list", "--error", "KeyError") == []
        assert "did you mean 'billing'?" in stage.run("parked", "list", "billin", code=4).err
        assert "must be one of" in stage.run("parked", "list", "--state", "lost", code=2).err

    def test_runs_again_after_asking(self, stage: Stage, at_terminal: None) -> None:
        stage.topic(parks=True)
        (found,) = stage.json("parked", "list")
        position = str(found["position"])
        assert "Nothing is done." in stage.run("parked", "retry", "billing", position, input="n\n", code=1).out
        assert "Let 1 message run again?" in stage.run("parked", "retry", "billing", "--all", input="y\n").err
        assert stage.json("parked", "list") == []
        assert [each["state"] for each in stage.json("parked", "list", "--state", "all")] == ["retry"]

    def test_is_skipped(self, stage: Stage) -> None:
        stage.topic(parks=True)
        (found,) = stage.json("parked", "list")
        assert "--yes" in stage.run("parked", "skip", "billing", str(found["position"]), code=2).err
        done = stage.json("parked", "skip", "billing", str(found["position"]), "--yes")
        assert done == {"group": "billing", "uri": "shop", "positions": [found["position"]], "is_done": True}
        assert stage.json("parked", "list", "--state", "all") == []

    def test_is_only_shown_on_a_dry_run(self, stage: Stage) -> None:
        stage.topic(parks=True)
        (found,) = stage.json("parked", "list")
        position = found["position"]
        for given, title in (
            (["retry", "billing", "--all"], "Would run again"),
            (["skip", "billing", str(position)], "Would end unhandled"),
        ):
            with case(given):
                assert stage.run("parked", *given, "--dry-run").out.startswith(f"{title}\ngroup")
                planned = stage.json("parked", *given, "--dry-run")
                assert planned == {"group": "billing", "uri": "shop", "positions": [position], "is_done": False}
                assert [each["state"] for each in stage.json("parked", "list", "--state", "all")] == ["parked"]

    def test_is_shown_before_a_script_changes_it(self, stage: Stage) -> None:
        stage.topic(parks=True)
        printed = stage.run("parked", "retry", "billing", "--all", "--yes").out
        assert printed.startswith("Would run again\ngroup")
        assert printed.endswith("1 message of group 'billing' will run again.\n")

    def test_is_found_behind_a_page_of_others(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parked, "AT_ONCE", 1)
        stage.topic(parks=True, reads=2)
        first, second = stage.json("parked", "list")
        stage.run("parked", "retry", "billing", str(second["position"]), "--yes")
        assert [each["position"] for each in stage.json("parked", "list")] == [first["position"]]

    def test_that_is_not_there_is_nothing(self, stage: Stage) -> None:
        stage.topic(parks=True)
        stage.run("parked", "retry", "billing", "99", "--yes", code=4)
        stage.run("parked", "skip", "billing", "99", "--yes", code=4)
        stage.run("parked", "retry", "billing", code=2)
        stage.run("parked", "retry", "billing", "1", "--all", code=2)
        stage.run("parked", "skip", "billing", code=2)
        stage.run("parked", "retry", "nobody", "--all", "--yes", code=4)


class TestPause:
    def test_of_a_queue(self, stage: Stage) -> None:
        stage.bury(1)
        assert stage.run("pause", "orders").out == "Queue 'orders' is paused.\n"
        assert stage.run("pause", "orders").out == "Queue 'orders' was paused already.\n"
        assert stage.json("resume", "orders") == {"queue": "orders", "group": None, "is_changed": True}
        assert stage.run("resume", "orders").out == "Queue 'orders' was not paused.\n"
        assert "did you mean 'orders'?" in stage.run("pause", "order", code=4).err
        assert stage.json("pause", "later", "--create")["is_changed"] is True

    def test_of_a_group(self, stage: Stage) -> None:
        stage.topic()
        assert stage.run("pause", "--group", "billing").out == "Group 'billing' is paused.\n"
        assert stage.json("resume", "-g", "billing", "--uri", "shop")["is_changed"] is True
        assert "did you mean 'billing'?" in stage.run("pause", "--group", "bill", code=4).err

    def test_wants_one_of_both(self, stage: Stage) -> None:
        stage.run("pause", code=2)
        stage.run("resume", "orders", "--group", "billing", code=2)
