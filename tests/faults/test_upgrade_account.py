"""The account of an upgrade sees each kind of wrong."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.cases import each
from tests.faults.upgrade_account import Run, Sent, TakenOver, UpgradeAccount, upgrade_account

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)
SENT = [Sent("a", "plain", 1, NOON), Sent("b", "poison", 2, NOON), Sent("c", "timer", 3, LATER)]
RUNS = [Run("a", "old", NOON, "done"), Run("b", "new", NOON, "failed"), Run("c", "new", LATER, "done")]
TOKEN = UUID(int=1)


def drawn(
    sent: list[Sent] = SENT,
    runs: list[Run] = RUNS,
    leases: tuple[TakenOver, ...] = (),
    left: frozenset[int] = frozenset(),
    dead: tuple[int, ...] = (2,),
    dropping: frozenset[str] = frozenset(),
) -> UpgradeAccount:
    return upgrade_account(
        sent=sent, runs=runs, leases=leases, left=left, dead=dead, lease_seconds=2.0, dropping=dropping
    )


def test_an_account_without_wrongs_adds_up() -> None:
    found = drawn()
    assert found.wrongs() == {}
    assert (found.sent, found.done, found.dead, found.dropped) == (3, 2, 1, 0)


in_time = TakenOver(1, TOKEN, NOON, NOON + timedelta(seconds=2))
too_soon = replace(in_time, new_at=NOON + timedelta(seconds=1))
again = [*RUNS, Run("a", "new", LATER, "done")]
dropped_by_old = [RUNS[0], Run("b", "old", NOON, "failed"), RUNS[2]]

WRONGS = [
    (drawn(runs=RUNS[1:]), {"lost": {"a"}}),
    (drawn(runs=RUNS[1:], left=frozenset({1})), {"left": {"a"}}),
    (drawn(dead=()), {"lost": {"b"}}),
    (drawn(dead=(2, 2)), {"twice": {"b"}}),
    (drawn(dead=(1, 2)), {"twice": {"a"}}),
    (drawn(runs=again), {"twice": {"a"}}),
    (drawn(runs=again, leases=(in_time,)), {}),
    (drawn(leases=(too_soon,)), {"stolen": {too_soon}}),
    (drawn(runs=[*RUNS, Run("x", "old", NOON, "done")]), {"ghosts": {"x"}}),
    (drawn(runs=[*RUNS[:2], replace(RUNS[2], started=NOON)]), {"early": {"c"}}),
    (drawn(runs=dropped_by_old, dead=()), {"lost": {"b"}}),
    (drawn(runs=dropped_by_old, dead=(), dropping=frozenset({"old"})), {}),
    (drawn(dead=(), dropping=frozenset({"old"})), {"lost": {"b"}}),
]


@each(("found", "wrongs"), WRONGS)
def test_each_wrong_is_seen(found: UpgradeAccount, wrongs: dict[str, set[object]]) -> None:
    assert {name: set(what) for name, what in found.wrongs().items()} == wrongs  # type: ignore[call-overload]
