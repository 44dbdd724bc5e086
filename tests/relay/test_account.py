"""The account of the fault tests sees what is missing, what is out of order, and why something came again."""

from typing import Any

from tests.relay.account import KILLED, TAKEN_OVER, UNCONFIRMED, Arrived, account

PUBLISHED = {("queue", number) for number in range(4)}


def arrived(number: int, sender: str = "1", key: str = "a", **options: Any) -> Arrived:
    return Arrived(options.get("id", f"id-{number}"), {"source": "queue", "key": key, "n": number}, sender)


def test_all_in_order() -> None:
    found = account(PUBLISHED, [arrived(0), arrived(1, key="b"), arrived(2), arrived(3)], killed=())
    assert str(found) == "0 lost, 0 keys out of order, 0 again"


def test_what_is_missing_and_what_nobody_published() -> None:
    found = account(PUBLISHED, [arrived(0), arrived(1), arrived(2), arrived(7)], killed=())
    assert (found.lost, found.unknown) == ({("queue", 3)}, {("queue", 7)})


def test_order_is_that_of_the_first_copies() -> None:
    late = [arrived(0), arrived(1), arrived(2), arrived(3), arrived(0), arrived(1)]
    assert account(PUBLISHED, late, killed=()).broken == {}
    assert account(PUBLISHED, [arrived(0), arrived(2), arrived(1), arrived(3)], killed=()).broken == {
        ("queue", "a"): [0, 2, 1, 3]
    }


def test_a_message_under_two_ids_is_not_in_order() -> None:
    assert account(PUBLISHED, [arrived(0), arrived(0, id="other")], killed=()).broken == {("queue", "a"): [0, 0]}


def test_why_something_came_again() -> None:
    copies = [arrived(0, "1"), arrived(0, "2"), arrived(1, "2"), arrived(1, "2"), arrived(2, "2"), arrived(2, "3")]
    found = account(PUBLISHED, copies, killed={"1"})
    assert found.again == {KILLED: 1, UNCONFIRMED: 1, TAKEN_OVER: 1}
