"""The account sees each kind of wrong, so that the fault tests can fail."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.cases import each
from tests.faults.account import Account, LeaseChange, Run, account, held

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
A, B = UUID(int=1), UUID(int=2)
ONE, TWO = UUID(int=11), UUID(int=12)
TTL = 10.0


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def run(message: UUID, started: float, ended: float | None, outcome: str | None = "done", **more: Any) -> Run:
    end = None if ended is None else at(ended)
    values = {"delivery": 1, "pid": 1, "key": None, "version": 1, "acquired_at": at(started)} | more
    return Run(message_id=message, started=at(started), ended=end, outcome=outcome, **values)


def change(id_: int, old: tuple[UUID, float] | None, new: tuple[UUID, float] | None, key: str = "k") -> LeaseChange:
    old_token, old_at = (None, None) if old is None else (old[0], at(old[1]))
    new_token, new_at = (None, None) if new is None else (new[0], at(new[1]))
    return LeaseChange(id_, key, old_token, old_at, new_token, new_at, new_at or BEGIN)


def drawn_up(**given: Any) -> Account:
    nothing: dict[str, Any] = {"committed": set(), "left": set(), "dead": [], "effects": {}, "with_effects": set()}
    return account(**(nothing | {"runs": [], "leases": [], "lease_seconds": TTL} | given))


def test_all_is_well() -> None:
    runs = [run(A, 0, 1, key="k"), run(B, 1, 2, key="k", version=2)]
    leases = [
        change(1, None, (ONE, 0)),
        change(1, (ONE, 0), None),
        change(2, None, (TWO, 1)),
        change(2, (TWO, 1), None),
    ]
    assert not drawn_up(committed={A, B}, runs=runs, leases=leases).wrongs()


@each(
    ("wrong", "given"),
    [
        ("lost", {"committed": {A, B}, "runs": [run(A, 0, 1)]}),
        ("lost", {"committed": {A}, "runs": [run(A, 0, 1, "retry")]}),
        ("lost", {"committed": {A}, "runs": [run(A, 0, None, None)]}),
        ("left", {"committed": {A}, "left": {A}}),
        ("ghosts", {"runs": [run(A, 0, None, None)]}),
        ("twice", {"committed": {A}, "effects": {A: 2}, "with_effects": {A}}),
        ("twice", {"committed": {A}, "dead": [A], "runs": [run(A, 0, 1)]}),
        ("twice", {"committed": {A}, "dead": [A, A]}),
        ("stolen", {"leases": [change(1, (ONE, 0), (TWO, 9))]}),
        ("abreast", {"leases": [change(1, None, (ONE, 0)), change(2, None, (TWO, 9))]}),
        ("disordered", {"committed": {A, B}, "runs": [run(B, 0, 1, key="k", version=2), run(A, 2, 3, key="k")]}),
        (
            "disordered",
            {
                "committed": {A, B},
                "runs": [run(A, 0, 1, "retry", key="k"), run(B, 2, 3, key="k", version=2), run(A, 4, 5, key="k")],
            },
        ),
        ("overlapping", {"committed": {A}, "runs": [run(A, 0, 2), run(A, 1, 3)]}),
        (
            "overlapping",
            {
                "committed": {A, B},
                "runs": [run(A, 0, 1, key="k"), run(A, 1, 5, key="k"), run(B, 3, 6, key="k", version=2)],
            },
        ),
    ],
)
def test_wrong_is_seen(wrong: str, given: dict[str, Any]) -> None:
    assert set(drawn_up(**given).wrongs()) == {wrong}


@each(
    "leases",
    [
        [change(1, (ONE, 0), (TWO, 10))],
        [change(1, (ONE, 0), (ONE, 5))],
        [change(1, None, (ONE, 0)), change(2, None, (ONE, 0))],
        [change(1, None, (ONE, 0)), change(2, None, (TWO, 10))],
        [change(1, None, (ONE, 0), "k"), change(2, None, (TWO, 1), "l")],
        [change(1, None, (ONE, 0)), change(1, (ONE, 0), None), change(2, None, (TWO, 1))],
    ],
)
def test_lease_that_changes_rightly_is_no_wrong(leases: list[LeaseChange]) -> None:
    assert not drawn_up(leases=leases).wrongs()


def test_lease_that_nobody_heard_of_is_nobodys() -> None:
    leases = [change(1, None, (ONE, 0)), change(1, (ONE, 0), (TWO, 1)), change(1, (TWO, 1), None)]
    assert set(drawn_up(leases=leases).wrongs()) == {"stolen"}
    assert not drawn_up(leases=[held(one, {TWO}) for one in leases]).wrongs()
    assert set(drawn_up(leases=[held(one, {ONE, TWO}) for one in leases]).wrongs()) == {"stolen"}
