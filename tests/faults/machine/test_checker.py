"""The checker with made-up histories: each kind of wrong is seen and named, and a good history passes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.machine.checker import check
from tests.faults.machine.facts import Arrival, Business, Effect, Facts, Lease, Left, Letter, Sent, Span
from tests.faults.machine.history import NANO, Event
from tests.faults.machine.report import GROUPED, Report
from tests.faults.machine.runs import tell

A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
"""Tokens of two workers."""
OF_A, OF_B = "outbox aaaaaaaa settle host/1", "outbox bbbbbbbb settle host/2"
MACHINE = 99
CUT = "connections cut"


def event(at: float, kind: str, pid: int = 1, role: str = "worker", **data: Any) -> Event:
    return Event(int(at * NANO), pid, role, kind, data)


def cut(at: float, until: float) -> list[Event]:
    struck = event(at, "struck", MACHINE, "machine", fault=CUT, detail="")
    return [struck, event(until, "healed", MACHINE, "machine", fault=CUT)]


def said(at: float, kind: str, *ids: str) -> Event:
    return event(at, kind, 50, "producer", ids=list(ids))


def ran(
    message: str,
    start: float,
    end: float | None,
    *,
    run: int,
    place: str = "orders",
    outcome: str = "done",
    **more: Any,
) -> list[Event]:
    """The two events of a run, or the first alone."""
    pid = more.pop("pid", 1)
    data = {"key": None, "version": None, "attempt": 1, "token": A} | more
    found = [event(start, "started", pid, run=run, id=message, place=place, **data)]
    if end is not None:
        found.append(event(end, "finished", pid, run=run, place=place, outcome=outcome))
    return found


def lease(at: float, message: str, old: tuple[str, float] | None, new: tuple[str, float] | None, **more: Any) -> Lease:
    values: dict[str, Any] = {"row": 1, "place": "orders", "key": None, "due": 0.0, "who": OF_A} | more
    return Lease(
        at=at,
        id=message,
        old_token=None if old is None else old[0],
        old_at=None if old is None else old[1],
        new_token=None if new is None else new[0],
        new_at=None if new is None else new[1],
        is_gone=new is None and not values.pop("is_kept", False),
        **values,
    )


def span(at: float, **more: Any) -> Span:
    values: dict[str, Any] = {
        "group": "plain",
        "lo": 0,
        "old_epoch": 1,
        "new_epoch": 1,
        "old_owner": A,
        "new_owner": A,
        "old_until": at + 1,
        "old_cursor": (1, 1),
        "new_cursor": (2, 5),
        "who": OF_A,
    }
    return Span(at=at, **(values | more))


def letter(message: str, **more: Any) -> Letter:
    values = {
        "place": "orders",
        "body": json.dumps({"id": message}),
        "mark": message,
        "reason": "retry_terminal",
        "error_type": "run.Poison",
        "error_message": f"poison {message}",
        "traceback": "Traceback: Poison",
    }
    return Letter(id=message, **(values | more))


def business(message: str, place: str = "orders", **more: Any) -> Business:
    return Business(message, place, body=json.dumps({"id": message}), **more)


KEYED = {"key": "k", "place": "orders"}
GOOD_EVENTS = [
    event(0.0, "born", files=["socket"], tasks=["main"]),
    said(0.5, "begun", "m1", "m2", "m3"),
    said(0.6, "committed", "m1", "m2", "m3"),
    said(0.7, "rolled_back", "never"),
    said(0.8, "uncertain", "maybe"),
    *ran("m1", 1.0, 2.0, run=1, key="k", version=1),
    *ran("m2", 2.1, 2.5, run=2, key="k", version=2),
    *ran("m3", 3.0, 3.1, run=3, outcome="dead", attempt=3),
    *ran("t1", 3.2, 3.3, run=4, place="timers"),
    *ran("f1", 3.4, 3.5, run=5, place="facts/plain", token=None),
    event(5.0, "ended", files=["socket"], tasks=["main"]),
]
GOOD = Facts(
    business=[
        business("m1", key="k", version=1),
        business("m2", key="k", version=2),
        business("m3", poison=True),
        business("t1", "timers", due=3.0),
        business("f1", "facts"),
        business("e1", "exact"),
        business("o1", "outward", key="o", version=1),
        business("o2", "outward", key="o", version=2),
    ],
    arrivals=[
        *(Arrival(each, "orders") for each in ("m1", "m2", "m3")),
        Arrival("t1", "timers"),
        Arrival("f1", "facts"),
        Arrival("e1", "exact"),
        Arrival("o1", "outward"),
        Arrival("o2", "outward"),
    ],
    letters=[letter("m3")],
    effects=[
        Effect(1, "exact", "e1", None, None),
        Effect(2, "facts/exact", "f1", None, None),
        Effect(3, "inbox/facts", "f1", None, None),
        Effect(4, "inbox/outward", "o2", "o", 2),
        Effect(5, "inbox/outward", "o1", "o", 1),
    ],
    leases=[lease(1.0, "m1", None, (A, 1.0), key="k"), lease(2.0, "m1", (A, 1.0), None, key="k")],
    spans=[span(1.0)],
    sent=[
        Sent("outward/out", "o1", "o", 1),
        Sent("outward/out", "o2", "o", 2),
        Sent("outward/out", "o1", "o", 1),
        Sent("facts/out", "f1", None, None),
    ],
)


def test_good_history_passes() -> None:
    assert check(GOOD_EVENTS, GOOD) == []


def test_lease_of_a_key_that_has_run_out_may_be_ended_by_who_takes_the_key() -> None:
    assert check(*facts(leases=[lease(4.1, "m1", (A, 1.0), None, who=OF_B, is_kept=True, key="k")])) == []


def facts(**changes: Any) -> tuple[Sequence[Event], Facts]:
    return GOOD_EVENTS, replace(GOOD, **changes)


def events(*more: Event, without: Callable[[Event], bool] = lambda _: False, **changes: Any) -> Any:
    kept = [each for each in GOOD_EVENTS if not without(each)]
    return [*kept, *more], replace(GOOD, **changes)


def without(name: str, *ids: str) -> dict[str, Any]:
    return {name: [row for row in getattr(GOOD, name) if row.id not in ids]}


def running(*more: Event) -> tuple[Sequence[Event], Facts]:
    """A run whose lease another took when it had run out; its process was awake all the time."""
    beats = [event(at / 10, "beat", 7, kb=1) for at in range(100, 200)]
    run = ran("m1", 10.0, 19.0, run=1, pid=7, key="k", version=1)
    return events(*run, *beats, *more, leases=[lease(14.0, "m1", (A, 10.0), (B, 14.0), who=OF_B)])


def grown(last: int) -> Any:
    return events(*(event(10 + at, "beat", 8, kb=100_000 if at < 100 else last) for at in range(200)))


WRONGS: dict[str, tuple[Any, str, str]] = {
    "an answered commit is gone": (events(said(0.9, "committed", "x")), "commit lost", "x"),
    "a rollback is there": (events(said(0.9, "rolled_back", "m1")), "rollback kept", "m1"),
    "a row without its message": (facts(**without("arrivals", "m1")), "not published", "m1"),
    "a row with two messages": (facts(arrivals=[*GOOD.arrivals, Arrival("m1", "orders")]), "published twice", "m1"),
    "a message without its row": (facts(arrivals=[*GOOD.arrivals, Arrival("x", "orders")]), "ghost", "x"),
    "handled and never committed": (events(*ran("x", 4.0, 4.1, run=9)), "ghost", "x"),
    "not handled": (events(without=lambda each: each.data.get("run") == 4), "lost", "t1"),
    "begun and not ended": (
        events(without=lambda each: each.kind == "finished" and each.data.get("run") == 4),
        "lost",
        "t1",
    ),
    "no effect": (facts(effects=GOOD.effects[1:]), "lost", "e1"),
    "not handled by a group": (events(without=lambda each: each.data.get("run") == 5), "lost", "f1"),
    "not handled by the other group": (facts(effects=[GOOD.effects[0], *GOOD.effects[2:]]), "lost", "f1"),
    "not relayed": (facts(sent=GOOD.sent[:-1] if GOOD.sent else None), "lost", "f1"),
    "no effect at the far end": (facts(effects=GOOD.effects[:-1]), "lost", "o1"),
    "a dead letter that is gone": (facts(letters=[]), "lost", "m3"),
    "still in the queue": (facts(left=[Left("m1", "orders")]), "left", "m1"),
    "still deferred": (facts(deferred=["plain f1"]), "left", "f1"),
    "no progress": (events(event(4.0, "stuck", MACHINE, "machine", what="queues", left=3)), "stuck", "queues"),
    "taken while the lease lived": (
        events(*ran("m1", 1.0, 2.0, run=8, pid=3), leases=[lease(2.0, "m1", (A, 1.0), (B, 2.0), who=OF_B)]),
        "lease stolen",
        "m1",
    ),
    "taken from one who had not begun": (
        facts(leases=[lease(2.0, "m1", (B, 1.0), (A, 2.0))]),
        "lease stolen",
        "m1",
    ),
    "deleted by another": (facts(leases=[lease(2.0, "m1", (A, 1.0), None, who=OF_B)]), "settled by a stranger", "m1"),
    "given back by another": (
        facts(leases=[lease(2.0, "m1", (A, 1.0), None, who=OF_B, is_kept=True)]),
        "settled by a stranger",
        "m1",
    ),
    "a lease of a key ended before its time": (
        facts(leases=[lease(3.9, "m1", (A, 1.0), None, who=OF_B, is_kept=True, key="k")]),
        "settled by a stranger",
        "m1",
    ),
    "two of a key at once": (
        events(
            *ran("m1", 1.0, 2.0, run=8, pid=3, token=B, key="k", version=1),
            leases=[
                lease(1.0, "m1", None, (A, 1.0), key="k", row=1),
                lease(1.5, "m2", None, (B, 1.5), key="k", row=2, who=OF_B),
            ],
        ),
        "key abreast",
        "m2",
    ),
    "a lease that nobody renewed": (running(), "not renewed", "m1"),
    "two runs at once": (
        events(*ran("m1", 4.0, 4.4, run=8, version=1, key="k"), *ran("m1", 4.2, 4.6, run=9, version=1, key="k")),
        "twice at once",
        "m1",
    ),
    "slots taken too early": (facts(spans=[span(1.0, new_owner=B, who=OF_B)]), "span stolen", "plain slots from 0"),
    "a cursor that went back": (facts(spans=[span(1.0, new_cursor=(1, 0))]), "cursor moved back", "plain slots from 0"),
    "a cursor moved by another": (
        facts(spans=[span(1.0, who=OF_B)]),
        "cursor moved by a stranger",
        "plain slots from 0",
    ),
    "began before the one before it": (
        events(*ran("m2", 1.5, 1.8, run=9, key="k", version=2)),
        "out of order",
        "m2",
    ),
    "effects in the wrong order": (
        facts(effects=[*GOOD.effects, Effect(6, "exact", "y2", "y", 2), Effect(7, "exact", "y1", "y", 1)]),
        "out of order",
        "y1",
    ),
    "the stream in the wrong order": (
        facts(sent=[GOOD.sent[1], GOOD.sent[0], GOOD.sent[3]] if GOOD.sent else None),
        "out of order",
        "o1",
    ),
    "an effect twice": (
        facts(effects=[*GOOD.effects, Effect(6, "exact", "e1", None, None)]),
        "effect doubled",
        "e1",
    ),
    "an effect twice at the far end": (
        facts(effects=[*GOOD.effects, Effect(6, "inbox/facts", "f1", None, None)]),
        "effect doubled",
        "f1",
    ),
    "an effect and a dead letter": (
        facts(letters=[*GOOD.letters, letter("e1", place="exact")]),
        "effect and dead",
        "e1",
    ),
    "two dead letters": (facts(letters=[*GOOD.letters, *GOOD.letters]), "dead twice", "m3"),
    "a handler's message without its effect": (
        facts(
            business=[*GOOD.business, business("c", parent="gone")], arrivals=[*GOOD.arrivals, Arrival("c", "orders")]
        ),
        "effect torn",
        "gone",
    ),
    "a timer that ran early": (
        events(*ran("t1", 2.5, 2.6, run=4, place="timers", pid=4), without=lambda each: each.data.get("run") == 4),
        "timer early",
        "t1",
    ),
    "a retry that was claimed early": (
        facts(leases=[lease(1.0, "m1", None, (A, 1.0), due=1.5)]),
        "timer early",
        "m1",
    ),
    "a dead letter without its body": (facts(letters=[letter("m3", body="{}")]), "dead letter incomplete", "m3"),
    "a dead letter without its headers": (facts(letters=[letter("m3", mark=None)]), "dead letter incomplete", "m3"),
    "a dead letter without its error": (
        facts(letters=[letter("m3", error_type=None)]),
        "dead letter incomplete",
        "m3",
    ),
    "a dead letter without its traceback": (
        facts(letters=[letter("m3", traceback=None)]),
        "dead letter incomplete",
        "m3",
    ),
    "a healthy message died": (facts(letters=[*GOOD.letters, letter("m1")]), "healthy message died", "m1"),
    "a lease is left": (facts(left=[Left("m1", "orders", A)]), "lease left", "m1"),
    "slots are left": (facts(owned=["plain 0 a"]), "lease left", "plain 0 a"),
    "a connection is left": (facts(connections=["outbox a"]), "connection left", "outbox a"),
    "a file is left": (
        events(event(6.0, "born", 2, files=[], tasks=[]), event(7.0, "ended", 2, files=["socket"], tasks=[])),
        "files left",
        "worker 2",
    ),
    "a task is left": (
        events(event(6.0, "born", 2, files=[], tasks=[]), event(7.0, "ended", 2, files=[], tasks=["loop"])),
        "tasks left",
        "worker 2",
    ),
    "a stop with an error": (
        events(event(6.0, "stopped", MACHINE, "machine", child=1, of="worker", code=1)),
        "bad end",
        "worker 1",
    ),
    "a process that died": (
        events(event(6.0, "died", MACHINE, "machine", child=1, of="worker", code=1)),
        "died",
        "worker 1",
    ),
    "a machine that failed": (events(event(6.0, "failed", what="draining", error="")), "not judged", "draining"),
    "memory that grew": (grown(150_000), "memory grew", "worker 8"),
}


@pytest.mark.parametrize("name", WRONGS)
def test_wrong_is_seen_and_named(name: str) -> None:
    (given, held), kind, message = WRONGS[name]
    found = check(given, held)
    assert (kind, message) in {(wrong.kind, wrong.message) for wrong in found}, "\n".join(map(str, found))


def test_every_kind_of_wrong_is_tried_and_counted() -> None:
    assert {kind for _, kind, _ in WRONGS.values()} == {kind for kinds in GROUPED.values() for kind in kinds}


class TestExcused:
    def test_lease_that_a_frozen_process_could_not_renew(self) -> None:
        run = ran("m1", 10.0, 19.0, run=1, pid=7, key="k", version=1)
        given, held = events(*run, leases=[lease(14.0, "m1", (A, 10.0), (B, 14.0), who=OF_B)])
        assert check(given, held) == []

    def test_lease_that_was_lost_by_a_fault(self) -> None:
        given, held = running(*cut(9.0, 9.5))
        assert check(given, held) == []

    def test_claim_whose_answer_nobody_heard_is_taken_again_at_once(self) -> None:
        given, held = events(leases=[lease(2.0, "m1", (A.replace("1", "9"), 1.0), (A, 2.0))])
        assert check(given, held) == []

    def test_member_that_lost_its_slots_to_another_of_its_process(self) -> None:
        more = [
            *ran("f1", 4.0, 4.4, run=8, place="facts/plain", token=None),
            *ran("f1", 4.2, 4.6, run=9, place="facts/plain", token=None),
        ]
        given, held = events(*more)
        assert check(given, held) == []

    def test_death_during_a_fault(self) -> None:
        strike = event(5.5, "struck", MACHINE, "machine", fault="NATS restarted", detail="")
        given, held = events(strike, event(6.0, "died", MACHINE, "machine", child=1, of="relay", code=1))
        assert check(given, held) == []

    def test_memory_that_grew_a_little(self) -> None:
        given, held = grown(105_000)
        assert check(given, held) == []

    def test_places_that_nobody_reads_in_this_run(self) -> None:
        given, held = events(without=lambda each: each.data.get("run") == 5)
        assert check(given, replace(held, places=frozenset({"orders"}))) == []


def test_report_counts_and_names() -> None:
    given, held = WRONGS["an effect twice"][0]
    story = tell([*given, *cut(0.9, 1.0)])
    report = Report(7, 5.0, story, held, check(story, held), {})
    summary = report.summary
    assert summary["wrong"]["effects"] == 1
    assert sum(summary["wrong"].values()) == 1
    assert summary["faults"] == {CUT: 1}
    assert summary["recovery"][CUT]["seconds"]["worker"] == {"p50": 1.0, "max": 1.0}
    assert "| effects | 1 |" in report.markdown()
    assert "effect doubled: e1" in report.markdown()
