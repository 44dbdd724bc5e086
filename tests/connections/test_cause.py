"""What an error means, by itself and through SQLAlchemy; what passes by itself; what of it may be repeated."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from faststream_outbox._internal.connections.cause import (
    MOST_LINKS,
    MOST_SAID,
    first_line,
    has_state,
    hide_parameters,
    is_answered,
    is_bad_line,
    is_conflict,
    is_fault_of_data,
    is_locked,
    is_lost,
    is_refused,
    is_transient,
    may_be_of_one,
    said,
    sqlstate_of,
)
from faststream_outbox.errors import BeingHandled, BrokerUnavailable
from tests.cases import each

SECRET = "hunter2"


class Refused(Exception):
    """An answer of the server's, as psycopg and asyncpg raise it."""

    def __init__(self, sqlstate: str | None, words: str = "no") -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


class OfPsycopg2(Exception):
    """The same, as psycopg2 raises it."""

    def __init__(self, pgcode: str) -> None:
        super().__init__("no")
        self.pgcode = pgcode


def wrapped(error: BaseException, **options: Any) -> DBAPIError:
    """As SQLAlchemy raises it."""
    return DBAPIError("select :a", {"a": SECRET}, error, **options)


def ways(state: str) -> list[BaseException]:
    """The same answer of the server's, as it comes through each driver and SQLAlchemy."""
    return [Refused(state), OfPsycopg2(state), wrapped(Refused(state)), wrapped(OfPsycopg2(state))]


def caused(error: BaseException, cause: BaseException | None) -> BaseException:
    """As `raise error from cause` makes it."""
    error.__cause__ = cause
    return error


def raised(error: BaseException, *modules: str) -> BaseException:
    """The error, after functions of these modules called each other and the last one raised it."""
    source = "def call(rest, error):\n    if not rest:\n        raise error\n    rest[0](rest[1:], error)"
    calls = []
    for module in modules:
        stub: dict[str, Any] = {"__name__": module}
        exec(source, stub)
        calls.append(stub["call"])
    with suppress(type(error)):
        calls[0](calls[1:], error)
    return error


@each("error", ways("40001"))
def test_state_is_found_wherever_it_stands(error: BaseException) -> None:
    assert sqlstate_of(error) == "40001"


@each("error", [None, ValueError("no"), Refused(None), wrapped(ValueError("no"))])
def test_state_is_none_where_there_is_none(error: BaseException | None) -> None:
    assert (sqlstate_of(error), has_state(error, "")) == (None, False)


@each(
    ("states", "expected"),
    [
        (("08", "42P01"), True),
        (("42",), True),
        (("42P01",), True),
        (("42501", "08"), False),
        (("P01",), False),
        ((), False),
    ],
)
def test_state_is_one_of_several_or_of_their_classes(states: tuple[str, ...], expected: bool) -> None:
    assert has_state(Refused("42P01"), *states) is expected


@each(
    ("error", "line"),
    [
        (Refused("42P01", "no such table\nDETAIL: secret"), "no such table"),
        (Refused("42P01", "\n no such table \nDETAIL: secret"), " no such table "),
        (wrapped(Refused("42P01", "<class 'asyncpg.exceptions.X'>: no such table\nDETAIL: secret")), "no such table"),
        (wrapped(Refused("42P01", "no such key '>: ' here")), "no such key '>: ' here"),
        (ConnectionResetError(), "ConnectionResetError"),
        (wrapped(TimeoutError("")), "TimeoutError"),
    ],
)
def test_first_line_is_what_was_said_without_the_row(error: BaseException, line: str) -> None:
    assert first_line(error) == line


def refused(*states: str | None) -> list[BaseException]:
    return [Refused(state) for state in states]


NO_VALUE = UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates")
BAD_LINES = [
    ConnectionResetError(),
    OSError("no route"),
    psycopg.OperationalError("the connection is lost"),
    asyncpg.InterfaceError("connection is closed"),
    *refused("08006", "53300", "57014", "57P01"),
]
SAME_TO_ALL = ("0A000", "25006", "26000", "28000", "3D000", "3F000", "40001", "42501", "55P03", "58030", "XX000")
NOT_OF_DATA = ("28000", "28P01", "3D000", "42P01", "42501", "58030", "XX000", "08006", "53100", "57P01", "25006", None)
ANSWERS: dict[Callable[[Any], bool], tuple[list[Any], list[Any]]] = {
    is_conflict: (ways("40001"), [None, ValueError("no"), *ways("40P01"), caused(ValueError("no"), Refused("40001"))]),
    is_locked: (ways("55P03"), [None, TimeoutError(), *ways("55006")]),
    is_answered: (
        [*ways("23505"), *ways("40001"), *ways("57014")],
        [
            *[*ways("08006"), *ways("57P01"), OSError(), wrapped(Refused(None))],
            wrapped(Refused("23505"), connection_invalidated=True),
        ],
    ),
    is_bad_line: (BAD_LINES, [ValueError("unreadable"), TimeoutError(), *refused("XX001", "25P03", "40001")]),
    may_be_of_one: (
        [*refused("XX001", "22P02", "08006", "57014"), ValueError("year 10001 is out of range")],
        refused(*SAME_TO_ALL),
    ),
    is_lost: (
        [OSError(), TimeoutError(), ValueError("no"), *refused("25P03", "08006")],
        refused("57P01", "25P02", "42P01", "40001"),
    ),
    is_fault_of_data: (
        [
            *refused("22001", "22P05", "23514", "23505", "54000", "P0001", "44000"),
            NO_VALUE,
            OverflowError("value out of int64 range"),
        ],
        refused(*NOT_OF_DATA),
    ),
    is_refused: (
        refused("22P02", "23505", "42P01", "0A000"),
        [ValueError("no"), TimeoutError(), *refused("25006", "40001", "57014", None)],
    ),
}


@each(
    ("is_so", "error", "expected"),
    [
        (is_so, error, expected)
        for is_so, answers in ANSWERS.items()
        for expected, errors in zip((True, False), answers, strict=True)
        for error in errors
    ],
)
def test_error_means(is_so: Callable[[Any], bool], error: BaseException | None, expected: bool) -> None:
    assert is_so(error) is expected


STATES = ["08006", "53300", "40001", "40P01", "57P01", "57P05", "25006", "55P03"]
DRIVERS = ["asyncpg.connect_utils", "sqlalchemy.engine.base", "psycopg", "psycopg_pool.pool_async", "psycopg2"]
OTHERS = ["httpx", "shop.handlers", "asyncpg_cache", "faststream_outbox._internal.relay.line"]
LOOPS = ["asyncio.base_events", "uvloop.loop", "socket"]
REFUSED_PSYCOPG = psycopg.OperationalError("connection refused")
ELSEWHERE = [sqlite3.OperationalError("no such table"), psycopg.errors.QueryCanceled("too slow")]


def through(links: int) -> BaseException:
    """An error of which one that passes is the cause, so many errors away."""
    error: BaseException = Refused("40001")
    for _ in range(links):
        error = caused(ValueError("no"), error)
    return error


def its_own_cause() -> BaseException:
    error = ValueError("no")
    return caused(error, caused(ValueError("other"), error))


def while_handling() -> BaseException:
    error = ValueError("no")
    error.__context__ = Refused("40001")
    return error


def late() -> list[BaseException]:
    return [
        raised(caused(TimeoutError(), cause), "asyncpg")
        for cause in (None, Refused("40001"), raised(ConnectionRefusedError(), "asyncpg"))
    ]


PASSES: dict[str, list[BaseException]] = {
    "states that pass": [error for state in STATES for error in ways(state)],
    "its turn comes later": [PoolExhausted("no connection in time"), BeingHandled("by another")],
    "a connection that died under a statement": [
        InterfaceError("select", {}, orig, connection_invalidated=True) for orig in (Refused(None), Refused("22012"))
    ],
    "a driver that cannot work and has no state": [
        REFUSED_PSYCOPG,
        OperationalError("select", {}, REFUSED_PSYCOPG),
        OperationalError("select", {}, Refused(None)),
    ],
    "a socket that a driver wanted": [
        raised(kind(), "shop.handlers", module, *loops)
        for module in DRIVERS
        for kind in (ConnectionRefusedError, FileNotFoundError, OSError)
        for loops in ([], LOOPS)
    ],
    "what was said before the time was over": [caused(Refused("08006"), TimeoutError())],
    "an error that was raised from one that passes": [
        caused(ValueError("no"), cause)
        for cause in (Refused("40001"), PoolExhausted(), raised(ConnectionRefusedError(), "asyncpg"))
    ],
    "a cause not too far away": [through(MOST_LINKS - 1)],
}
STAYS: dict[str, list[BaseException | None]] = {
    "a driver of another database, and a state that does not pass": [
        *ELSEWHERE,
        *(OperationalError("select", {}, error) for error in ELSEWHERE),
    ],
    "a socket that somebody else wanted": [
        error
        for module in OTHERS
        for error in (
            raised(ConnectionRefusedError(), module, *LOOPS),
            raised(ConnectionRefusedError(), "asyncpg.pool", module),
        )
    ],
    "a socket of which nobody knows who wanted it": [
        ConnectionRefusedError(),
        BrokerUnavailable("nats: down"),
        raised(OSError(), *LOOPS),
    ],
    "a session that was used twice at once": [
        InterfaceError("select", {}, Refused(None)),
        asyncpg.InterfaceError("another operation"),
    ],
    "a time that is over, whatever caused it": [*late(), *(caused(ValueError("no"), error) for error in late())],
    "any other error": [None, ValueError("no"), *ways("57014"), *ways("23505"), *ways("42P01")],
    "an error that was raised while one that passes was handled": [while_handling()],
    "a cause too far away": [through(MOST_LINKS)],
    "an error that is its own cause": [its_own_cause()],
}


@each(
    ("what", "error", "passes"),
    [
        (what, error, passes)
        for passes, kinds in ((True, PASSES), (False, STAYS))
        for what, errors in kinds.items()
        for error in errors
    ],
)
def test_it_passes_by_itself(what: str, error: BaseException | None, passes: bool) -> None:
    assert is_transient(error) is passes, what


@pytest.fixture
def violation(database_url: URL) -> DBAPIError:
    """An error of SQLAlchemy's with parameters, and with a row in its details."""
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        connection.execute(text("create temporary table t (a text check (a = ''), b text)"))
        with pytest.raises(DBAPIError) as failure:
            connection.execute(text("insert into t values (:a, 'row')"), {"a": SECRET})
    engine.dispose()
    assert SECRET in str(failure.value)
    return failure.value


def test_parameters_are_hidden_in_causes_and_groups() -> None:
    alone, grouped = wrapped(Refused("23505")), wrapped(Refused("23505"))
    error = caused(ValueError("no"), ExceptionGroup("several", [alone, caused(KeyError(), grouped)]))
    # A circle has an end as well.
    hide_parameters(caused(alone, error))
    assert SECRET not in f"{alone} {grouped}"


def test_parameters_are_hidden_of_what_was_handled_at_the_time() -> None:
    error, before = ValueError("no"), wrapped(Refused("23505"))
    error.__context__ = before
    hide_parameters(error)
    assert SECRET not in str(before)


def test_nothing_is_nothing() -> None:
    hide_parameters(None)
    assert said(None) == "None"


def test_neither_parameters_nor_rows_are_said(violation: DBAPIError) -> None:
    assert SECRET in repr(violation.orig)
    for error in (violation, violation.orig):
        assert ("violates check constraint" in said(error), SECRET in said(error)) == (True, False)


def test_only_the_first_line_is_said_of_what_sqlalchemy_wraps() -> None:
    assert said(wrapped(Refused("23505", f"duplicate key\nDETAIL: {SECRET}"))) == "DBAPIError('duplicate key')"


def test_no_body_is_said_that_is_no_text() -> None:
    with pytest.raises(UnicodeDecodeError) as failure:
        f"{SECRET}\xff".encode("latin-1").decode()
    assert said(failure.value).startswith("UnicodeDecodeError(")
    assert SECRET not in said(failure.value)


def test_what_a_silent_repr_leaves_out_is_said() -> None:
    class Terse(Exception):
        """An error as redis-py has them: its repr does not have what it says."""

        def __repr__(self) -> str:
            return "network:ConnectionError"

    assert said(Terse("connection refused")) == "network:ConnectionError('connection refused')"
    assert said(Terse()) == "network:ConnectionError"


def test_an_error_that_cannot_be_rendered_is_named() -> None:
    class Broken(Exception):
        def __repr__(self) -> str:
            raise KeyError

    assert said(Broken()) == "Broken (KeyError while rendering it)"


def test_no_more_is_said_than_fits_into_a_line() -> None:
    assert (len(said(ValueError("x" * 2 * MOST_SAID))), said(ValueError("x" * 2000))[-1]) == (MOST_SAID, "…")
