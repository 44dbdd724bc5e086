"""How things stand, on the command line: status, queues, peek, show, timers, workers, groups, tail, doctor."""

import json

import psycopg

from faststream_outbox import Envelope
from faststream_outbox._internal.connections.identity import name_of
from tests.cli.stage import Stage

HOSTILE = "\x1b[31m[bold]x[/bold]\n"


class TestStatus:
    def test_is_one_screen(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        stage.bury(2)
        stage.topic(parks=True)
        out = stage.run("status").out
        assert [line for line in out.splitlines() if line in ("Queues", "Groups", "What is wrong")] == [
            "Queues",
            "Groups",
            "What is wrong",
        ]
        assert "queue 'orders'" in out
        found = stage.json("status")
        assert set(found) == {"queues", "groups", "problems"}
        assert (found["queues"][0]["ready"], found["queues"][0]["dead"], found["groups"][0]["parked"]) == (1, 2, 1)

    def test_of_an_empty_database_is_fine(self, stage: Stage) -> None:
        assert "Nothing is wrong" in stage.run("status").out

    def test_fails_on_what_a_script_asks_for(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        stage.sql("update outbox set next_attempt_at = now() - interval '1 hour'")
        stage.bury(2)
        stage.run("status", "--fail-on-age", "2h", "--fail-on-dead", "2")
        assert "critical" in stage.run("status", "--fail-on-age", "30m", code=1).out
        assert stage.json("status", "--fail-on-dead", "1", code=1)["problems"][0]["severity"] == "critical"


class TestQueues:
    def test_are_counted(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"), Envelope(queue="mails", body=b"2"))
        stage.timer()
        stage.run("pause", "mails")
        rows = [line.split() for line in stage.run("queues").out.splitlines()]
        assert rows[0] == ["queue", "ready", "oldest", "leased", "scheduled", "dead"]
        assert [(row[0], row[1], row[4]) for row in rows[1:]] == [("mails", "1", "0"), ("orders", "1", "1")]
        (found,) = stage.json("queues", "mails")
        assert found["is_paused"] is True

    def test_that_nobody_knows_are_refused(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        assert "did you mean 'orders'?" in stage.run("queues", "ordrs", code=4).err


class TestPeek:
    def test_shows_what_falls_due_next(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b'{"order": 1}', key=HOSTILE, headers={"a": HOSTILE}))
        stage.timer()
        printed = stage.run("peek", "orders")
        assert "\x1b" not in printed.out
        rows = printed.out.splitlines()
        assert (len(rows), "ready" in rows[1], "scheduled" in rows[2]) == (3, True, True)
        found = stage.json("peek", "orders", "--limit", "1")
        assert (found[0]["key"], found[0]["headers"]) == (HOSTILE, {"a": HOSTILE})

    def test_of_a_queue_that_nobody_knows_is_refused(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        assert "did you mean 'orders'?" in stage.run("peek", "ordrs", code=4).err
        stage.sql("delete from outbox")
        stage.bury(1)
        assert stage.run("peek", "orders").out == "The queue is empty.\n"


class TestShow:
    def test_has_everything_about_a_message(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b'{"order":1}', key="k", headers={"a": 1}))
        stage.publish(Envelope(queue="orders", body=b"2", key="k"))
        out = stage.run("show", "1").out
        assert 'body\n  {\n    "order": 1\n  }' in out
        found = stage.json("show", "2")
        assert (found["state"], found["waits_for"]) == ("blocked", 1)
        assert stage.json("show", found["message"]["message_id"])["message"]["id"] == 2

    def test_finds_the_dead(self, stage: Stage) -> None:
        stage.bury(1)
        assert "Traceback: 1" in stage.run("show", "1001").out
        assert stage.json("show", "1001")["state"] == "dead"

    def test_of_none_is_nothing(self, stage: Stage) -> None:
        stage.run("show", "7", code=4)
        stage.run("show", "seven", code=2)
        stage.run("show", "9" * 30, code=2)


class TestTimers:
    def test_are_listed(self, stage: Stage) -> None:
        assert stage.run("timers", "list").out == "No timer waits.\n"
        stage.timer()
        assert "remind-1" in stage.run("timers", "list", "orders").out
        (found,) = stage.json("timers", "list")
        assert (found["queue"], found["timer_id"]) == ("orders", "remind-1")
        assert "did you mean 'orders'?" in stage.run("timers", "list", "order", code=4).err

    def test_are_taken_back(self, stage: Stage) -> None:
        stage.timer()
        stage.timer("remind-2")
        assert "is cancelled" in stage.run("timers", "cancel", "orders", "remind-1").out
        assert stage.json("timers", "cancel", "orders", "remind-2")["is_cancelled"] is True

    def test_that_are_not_there_are_refused(self, stage: Stage) -> None:
        stage.timer()
        assert "did you mean 'remind-1'?" in stage.run("timers", "cancel", "orders", "remind-7", code=4).err
        assert "did you mean 'orders'?" in stage.run("timers", "cancel", "order", "remind-1", code=4).err
        stage.sql("update outbox set acquired_token = gen_random_uuid(), acquired_at = now()")
        assert "a worker holds it" in stage.run("timers", "cancel", "orders", "remind-1", code=1).err


def test_workers_are_those_that_are_connected(stage: Stage) -> None:
    assert "Nobody of ours is connected" in stage.run("workers").out
    assert stage.json("workers") == []


def test_workers_say_which_application_they_are_of(stage: Stage) -> None:
    with psycopg.connect(stage.dsn, application_name=name_of("3f2a9c1b", "claim", "web", 4711, "billing")):
        lines = [line.split() for line in stage.run("workers").out.splitlines()]
    assert [line[:4] for line in lines] == [
        ["worker", "application", "host", "pid"],
        ["3f2a9c1b", "billing", "web", "4711"],
    ]


class TestGroups:
    def test_are_listed(self, stage: Stage) -> None:
        assert "No group has read" in stage.run("groups", "list").out
        stage.topic(parks=True)
        assert stage.run("groups", "list", "billing").out.splitlines()[1].split()[:2] == ["billing", "shop"]
        (found,) = stage.json("groups", "list")
        assert (found["parked"], found["members"]) == (1, 0)
        assert "did you mean 'billing'?" in stage.run("groups", "list", "biling", code=4).err

    def test_stand_somewhere(self, stage: Stage) -> None:
        stage.topic()
        assert stage.run("groups", "lag", "billing").out.startswith("Slots\nslots")
        found = stage.json("groups", "lag", "billing")
        assert sum(each["messages"] for each in found["slots"]) == 1
        assert found["blocked_keys"] == []
        assert "did you mean 'billing'?" in stage.run("groups", "lag", "biling", code=4).err

    def test_may_have_keys_that_wait(self, stage: Stage) -> None:
        stage.topic(keys=["a", "a"], parks=True, reads=2)
        assert "Blocked keys\nkey" in stage.run("groups", "lag", "billing").out
        (blocked,) = stage.json("groups", "lag", "billing")["blocked_keys"]
        assert (blocked["key"], blocked["state"], blocked["waiting"]) == ("shop/a", "parked", 1)


class TestTail:
    def test_shows_how_things_stand_and_what_changes(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        stage.topic()
        lines = stage.run("tail", "--count", "2", "--interval", "0.1s").out.splitlines()
        assert [line.split("  ")[1] for line in lines] == ["queue 'orders'", "group 'billing' of 'shop'"]

    def test_gives_a_line_of_json_for_each_look(self, stage: Stage) -> None:
        stage.publish(Envelope(queue="orders", body=b"1"))
        looks = [
            json.loads(line) for line in stage.run("tail", "-c", "2", "--interval", "0s", "--json").out.splitlines()
        ]
        assert [[each["queue"] for each in look["data"]["queues"]] for look in looks] == [["orders"], []]


class TestDoctor:
    def test_finds_what_is_wrong_with_the_server_of_tests(self, stage: Stage) -> None:
        """It is critical, and the only thing that is."""
        found = stage.json("doctor", code=1)
        assert {each["check"] for each in found if each["severity"] == "critical"} == {"durability", "autovacuum"}
        out = stage.run("doctor", code=1).out
        assert "critical  durability" in " ".join(out.split(" ")).replace("   ", "  ")
        assert out.splitlines()[-1].endswith("found nothing wrong.")

    def test_prints_what_repairs_it(self, stage: Stage) -> None:
        stage.sql("drop index outbox_claim_idx")
        printed = stage.run("doctor", "--all", "--fail-on", "warning", code=1)
        assert "Repair:\n  " in printed.out
        assert "CREATE INDEX CONCURRENTLY outbox_claim_idx" in printed.out
        assert "ok" in [line.split()[0] for line in printed.out.splitlines() if line]
