"""Errors of the line, of a statement, and of one message."""

import pytest

from faststream_outbox._internal.connections.cause import is_bad_line, may_be_of_one


class Refused(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "is_bad"),
    [
        (ValueError("unreadable"), False),
        (TimeoutError(), False),
        (ConnectionResetError(), True),
        (OSError("no route"), True),
        (Refused("57014"), True),
        (Refused("XX001"), False),
    ],
    ids=repr,
)
def test_errors_of_the_line_are_told_from_errors_of_the_message(error: Exception, *, is_bad: bool) -> None:
    assert is_bad_line(error) is is_bad


@pytest.mark.parametrize(
    ("sqlstate", "may_be"),
    [("XX001", True), ("22P02", True), ("42501", False), ("40001", False), ("58030", False), ("XX000", False)],
)
def test_what_fails_for_every_message_is_told_from_what_may_be_of_one(sqlstate: str, *, may_be: bool) -> None:
    assert may_be_of_one(Refused(sqlstate)) is may_be
