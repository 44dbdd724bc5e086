"""The account of a log sees each kind of wrong, and nothing where there is none."""

from tests.cases import each
from tests.faults.log_account import Event, log_account

VERSIONS = {"a": 2, "b": 1}


@each(
    ("done", "parked", "wrong"),
    [
        ([("a", 1), ("b", 1)], [], {"lost": {("a", 2)}}),
        ([("a", 1), ("a", 2), ("b", 1), ("c", 1)], [], {"ghosts": {("c", 1)}}),
        ([("a", 1), ("a", 2), ("b", 1)], [("a", 3)], {"ghosts": {("a", 3)}}),
        ([("a", 1), ("a", 1), ("a", 2), ("b", 1)], [], {"twice": {("a", 1)}}),
        ([("a", 1), ("a", 2), ("b", 1)], [("b", 1)], {"twice": {("b", 1)}}),
        ([("a", 2), ("b", 1), ("a", 1)], [], {"disordered": (("a", 1),)}),
        ([("a", 1), ("a", 2), ("a", 1), ("b", 1)], [], {"twice": {("a", 1)}}),
    ],
)
def test_wrong_is_seen_and_nothing_else(done: list[Event], parked: list[Event], wrong: dict[str, object]) -> None:
    assert log_account(VERSIONS, done, parked).wrongs() == wrong


def test_nothing_is_wrong_where_everything_was_done_once_in_order_or_parked() -> None:
    account = log_account(VERSIONS, [("b", 1), ("a", 2)], [("a", 1)])
    assert (account.committed, account.done, account.parked, account.wrongs()) == (3, 2, 1, {})
