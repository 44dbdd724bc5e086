"""Errors become exit codes and messages; what is not known keeps its traceback."""

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from faststream_outbox import errors
from faststream_outbox._internal.cli.exits import Exit, Refusal, fault_of
from tests.cases import case


class Said(Exception):
    """What a driver raises."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def of_driver(text: str, sqlstate: str | None = None) -> OperationalError:
    return OperationalError("select 1", {}, Said(text, sqlstate))


def test_every_kind_has_its_exit_code() -> None:
    for error, is_connecting, expected in (
        (Refusal("no", Exit.NOTHING), False, Exit.NOTHING),
        (errors.UnknownName("no queue"), False, Exit.NOTHING),
        (errors.InvalidOption("no"), False, Exit.USAGE),
        (errors.SchemaMismatch("differs"), False, Exit.WRONG),
        (errors.GroupInUse("read"), False, Exit.WRONG),
        (errors.MissingRight("grant"), False, Exit.REFUSED),
        (errors.ConnectionUnusable("standby"), False, Exit.UNREACHABLE),
        (ConnectionRefusedError("refused"), True, Exit.UNREACHABLE),
        (TimeoutError(), True, Exit.UNREACHABLE),
        (of_driver("wrong password", "28P01"), True, Exit.UNREACHABLE),
        (of_driver("shutting down", "57P01"), False, Exit.UNREACHABLE),
        (of_driver("gone"), False, Exit.REFUSED),
        (of_driver("lock timeout", "55P03"), False, Exit.REFUSED),
    ):
        with case(error):
            assert fault_of(error, is_connecting=is_connecting).exit == expected


def test_only_what_the_server_said_is_repeated() -> None:
    error = ProgrammingError(
        "select secret", {"key": "secret"}, Said("<class 'x.Y'>: no such table\nDETAIL: secret", "42P01")
    )
    fault = fault_of(error, is_connecting=False)
    assert fault.message.startswith("The database refused: no such table `faststream-outbox schema check`")
    assert "secret" not in fault.message


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), KeyError("ours")])
def test_a_mistake_of_ours_keeps_its_traceback(error: Exception) -> None:
    assert fault_of(error, is_connecting=False) is None
