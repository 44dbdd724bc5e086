"""What `status` and `tail` make of the numbers of queues and groups, and how processes are shown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faststream_outbox._internal.cli.commands.status import (
    Limits,
    group_grid,
    problems,
    process_grid,
    process_named,
    queue_grid,
)
from faststream_outbox._internal.cli.commands.tail import change_lines, changed
from faststream_outbox._internal.cli.printing import plain
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox.overview import Process, QueueStatus
from tests.cases import case

NOW = datetime(2026, 11, 17, tzinfo=UTC)
QUEUE = QueueStatus("orders", 0, 0, 0, 0, 0.0, is_paused=False, is_estimate=False)
GROUP = GroupStatus(
    "billing", "shop", 1, 256, None, NOW, 0, 0, 0, has_more=False, messages=0, seconds=0.0, is_estimate=False
)
PROCESS = Process("c1af7b08", "web-1", 42, ("claim", "settle"), (7, 8), datetime(2026, 11, 17, tzinfo=UTC), 3, 0)


def found(one: QueueStatus | GroupStatus, limits: Limits | None = None) -> list[tuple[str, str]]:
    given = ([one], []) if isinstance(one, QueueStatus) else ([], [one])
    return [(each.severity, each.detail) for each in problems(*given, limits or Limits())]  # type: ignore[arg-type]


def test_of_a_queue() -> None:
    old = replace(QUEUE, ready=3, oldest_ready_seconds=120.0)
    for queue, expected in (
        (QUEUE, []),
        (replace(QUEUE, ready=3, oldest_ready_seconds=5.0), []),
        (old, [("warning", "the oldest message is due for 2m")]),
        (replace(old, is_paused=True), [("notice", "paused, with 3 messages ready")]),
        (replace(QUEUE, dead=1), [("warning", "1 dead letter")]),
    ):
        with case(queue):
            assert found(queue) == expected


def test_limits_make_it_critical() -> None:
    old = replace(QUEUE, ready=3, oldest_ready_seconds=120.0, dead=2)
    assert [severity for severity, _ in found(old, Limits(timedelta(minutes=1), 1))] == ["critical", "critical"]
    assert [severity for severity, _ in found(old, Limits(timedelta(minutes=3), 2))] == ["warning", "warning"]
    behind = replace(GROUP, messages=5, seconds=120.0, parked=2)
    assert [severity for severity, _ in found(behind, Limits(timedelta(minutes=1), None, 1))] == ["critical"] * 2
    paused = replace(behind, paused_since=NOW)
    assert found(paused, Limits(timedelta(minutes=1)))[0] == ("critical", "paused since 2026-11-17 00:00:00Z")


def test_of_a_group() -> None:
    for group, expected in (
        (GROUP, []),
        (replace(GROUP, messages=5, seconds=10.0), []),
        (replace(GROUP, messages=5, seconds=90.0), [("warning", "5 unread, 1m 30s behind")]),
        (replace(GROUP, messages=5, members=0), [("warning", "nobody reads it: 5 unread, 0s behind")]),
        (replace(GROUP, members=0), []),
        (replace(GROUP, paused_since=NOW), [("notice", "paused since 2026-11-17 00:00:00Z")]),
        (replace(GROUP, parked=1200), [("warning", "1,200 parked")]),
    ):
        with case(group):
            assert found(group) == expected


def test_the_worst_comes_first() -> None:
    queues = [replace(QUEUE, is_paused=True), replace(QUEUE, queue="mails", dead=5)]
    assert [each.severity for each in problems(queues, [], Limits(dead=1))] == ["critical", "notice"]


def test_estimates_are_marked() -> None:
    grid = queue_grid([replace(QUEUE, ready=10_000, dead=3, is_paused=True, is_estimate=True)])
    assert plain(grid).splitlines()[1].split() == ["orders", "10,000+", "0s", "0", "0", "3", "paused"]
    grid = group_grid([replace(GROUP, messages=7, is_estimate=True, parked=4, has_more=True, paused_since=NOW)])
    row = plain(grid).splitlines()[1].split()
    assert row == ["billing", "shop", "7+", "0s", "1", "256", "0", "0", "4+", "paused"]


def test_only_what_changed_is_a_line() -> None:
    before = {("queue", "orders"): QUEUE, ("queue", "gone"): replace(QUEUE, queue="gone"), ("group", "b", ""): GROUP}
    after = {
        ("queue", "orders"): replace(QUEUE, ready=4, oldest_ready_seconds=3.0),
        ("group", "b", ""): replace(GROUP, seconds=9.0),
        ("queue", "new"): replace(QUEUE, queue="new", is_paused=True),
    }
    changes = changed(dict(before), dict(after))
    lines = [plain(each) for each in change_lines([(each.before, each.after) for each in changes], NOW)]
    assert lines == [
        "2026-11-17 00:00:00Z  queue 'orders'  ready 4 (+4)  leased 0  scheduled 0  dead 0",
        "2026-11-17 00:00:00Z  queue 'new'  ready 0  leased 0  scheduled 0  dead 0  paused",
        "2026-11-17 00:00:00Z  queue 'gone'  gone: nothing is left of it",
    ]
    (line,) = change_lines([(GROUP, replace(GROUP, messages=2))], NOW)
    assert plain(line).endswith("group 'billing' of 'shop'  unread 2 (+2)  members 1  retrying 0  parked 0")


def test_each_process_is_a_row() -> None:
    row = plain(process_grid([PROCESS])).splitlines()[1].split("  ")
    assert [part.strip() for part in row if part.strip()] == [
        *("c1af7b08", "-", "web-1", "42", "claim, settle", "3", "0", "2026-11-17 00:00:00Z", "7 8")
    ]


def test_process_may_have_gone() -> None:
    assert process_named(PROCESS, "c1af7b08") == "c1af7b08 (pid 42 on web-1)"
    assert process_named(None, "c1af7b08") == "c1af7b08 (not connected any more)"
    assert process_named(None, None) is None
