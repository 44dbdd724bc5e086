"""What an error means, by itself and through SQLAlchemy; what passes by itself; what of it may be repeated."""

import sqlite3
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


class TestState:
    @each("error", ways("40001"))
    def test_is_found_wherever_it_stands(self, error: BaseException) -> None:
        assert sqlstate_of(error) == "40001"

    @each("error", [None, ValueError("no"), Refused(None), wrapped(ValueError("no"))])
    def test_is_none_where_there_is_none(self, error: BaseException | None) -> None:
        assert (sqlstate_of(error), has_state(error, "")) == (None, False)

    @each("states", [("08", "42P01"), ("42",), ("42P01",)])
    def test_is_one_of_several_or_of_their_classes(self, states: tuple[str, ...]) -> None:
        assert has_state(Refused("42P01"), *states)

    @each("states", [("42501", "08"), ("P01",), ()])
    def test_is_none_of_them(self, states: tuple[str, ...]) -> None:
        assert not has_state(Refused("42P01"), *states)


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


class TestConflict:
    @each("error", ways("40001"))
    def test_is_one(self, error: BaseException) -> None:
        assert is_conflict(error)

    @each("error", [None, ValueError("no"), *ways("40P01"), caused(ValueError("no"), Refused("40001"))])
    def test_is_none(self, error: BaseException | None) -> None:
        assert not is_conflict(error)


class TestLocked:
    @each("error", ways("55P03"))
    def test_is_locked(self, error: BaseException) -> None:
        assert is_locked(error)

    @each("error", [None, TimeoutError(), *ways("55006")])
    def test_is_not_locked(self, error: BaseException | None) -> None:
        assert not is_locked(error)


class TestAnswered:
    @each("error", [*ways("23505"), *ways("40001"), *ways("57014")])
    def test_was_answered(self, error: BaseException) -> None:
        assert is_answered(error)

    @each("error", [*ways("08006"), *ways("57P01"), OSError(), wrapped(Refused(None))])
    def test_was_not_answered(self, error: BaseException) -> None:
        assert not is_answered(error)

    def test_was_not_answered_where_the_connection_is_gone(self) -> None:
        assert not is_answered(wrapped(Refused("23505"), connection_invalidated=True))


class TestLine:
    @each("error", [ValueError("unreadable"), TimeoutError(), Refused("XX001"), Refused("25P03"), Refused("40001")])
    def test_is_not_bad(self, error: Exception) -> None:
        assert not is_bad_line(error)

    @each(
        "error",
        [
            ConnectionResetError(),
            OSError("no route"),
            psycopg.OperationalError("the connection is lost"),
            asyncpg.InterfaceError("connection is closed"),
            *map(Refused, ["08006", "53300", "57014", "57P01"]),
        ],
    )
    def test_is_bad(self, error: Exception) -> None:
        assert is_bad_line(error)


class TestOfOne:
    @each("state", ["XX001", "22P02", "08006", "57014"])
    def test_may_be(self, state: str) -> None:
        assert may_be_of_one(Refused(state))

    def test_may_be_where_nothing_is_known(self) -> None:
        assert may_be_of_one(ValueError("year 10001 is out of range"))

    @each("state", ["0A000", "25006", "26000", "28000", "3D000", "3F000", "40001", "42501", "55P03", "58030", "XX000"])
    def test_cannot_be(self, state: str) -> None:
        assert not may_be_of_one(Refused(state))


class TestLost:
    @each("error", [OSError(), TimeoutError(), ValueError("no"), Refused("25P03"), Refused("08006")])
    def test_is_the_connection(self, error: Exception) -> None:
        assert is_lost(error)

    @each("state", ["57P01", "25P02", "42P01", "40001"])
    def test_is_the_statement(self, state: str) -> None:
        assert not is_lost(Refused(state))


class TestFault:
    @each("state", ["22001", "22P05", "23514", "23505", "54000", "P0001", "44000"])
    def test_is_the_datas(self, state: str) -> None:
        assert is_fault_of_data(Refused(state))

    @each(
        "state",
        ["28000", "28P01", "3D000", "42P01", "42501", "58030", "XX000", "08006", "53100", "57P01", "25006", None],
    )
    def test_is_not_the_datas(self, state: str | None) -> None:
        assert not is_fault_of_data(Refused(state))

    def test_is_the_datas_where_the_driver_cannot_write_it_down(self) -> None:
        assert is_fault_of_data(UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates"))
        assert is_fault_of_data(OverflowError("value out of int64 range"))


class TestRefused:
    @each("state", ["22P02", "23505", "42P01", "0A000"])
    def test_would_be_refused_again(self, state: str) -> None:
        assert is_refused(Refused(state))

    @each("error", [ValueError("no"), TimeoutError(), *map(Refused, ["25006", "40001", "57014", None])])
    def test_might_be_taken_later(self, error: Exception) -> None:
        assert not is_refused(error)


STATES = ["08006", "53300", "40001", "40P01", "57P01", "57P05", "25006", "55P03"]
DRIVERS = ["asyncpg.connect_utils", "sqlalchemy.engine.base", "psycopg", "psycopg_pool.pool_async", "psycopg2"]
LOOPS = ["asyncio.base_events", "uvloop.loop", "socket"]


class TestTransient:
    @each("error", [error for state in STATES for error in ways(state)])
    def test_states_that_pass(self, error: BaseException) -> None:
        assert is_transient(error)

    @each("error", [PoolExhausted("no connection in time"), BeingHandled("by another")])
    def test_its_turn_comes_later(self, error: BaseException) -> None:
        assert is_transient(error)

    @each("orig", [Refused(None), Refused("22012")])
    def test_a_connection_that_died_under_a_statement(self, orig: Exception) -> None:
        assert is_transient(InterfaceError("select", {}, orig, connection_invalidated=True))

    @each(
        "error",
        [
            psycopg.OperationalError("connection refused"),
            OperationalError("select", {}, psycopg.OperationalError("connection refused")),
            OperationalError("select", {}, Refused(None)),
        ],
    )
    def test_a_driver_that_cannot_work_and_has_no_state(self, error: BaseException) -> None:
        assert is_transient(error)

    @each("error", [sqlite3.OperationalError("no such table"), psycopg.errors.QueryCanceled("too slow")])
    def test_a_driver_of_another_database_and_a_state_that_does_not_pass(self, error: Exception) -> None:
        assert not is_transient(error)
        assert not is_transient(OperationalError("select", {}, error))

    @each("module", DRIVERS)
    def test_a_socket_that_a_driver_wanted(self, module: str) -> None:
        for kind in (ConnectionRefusedError, FileNotFoundError, OSError):
            assert is_transient(raised(kind(), "shop.handlers", module))
            assert is_transient(raised(kind(), "shop.handlers", module, *LOOPS))

    @each("module", ["httpx", "shop.handlers", "asyncpg_cache", "faststream_outbox._internal.relay.line"])
    def test_a_socket_that_somebody_else_wanted(self, module: str) -> None:
        assert not is_transient(raised(ConnectionRefusedError(), module, *LOOPS))
        assert not is_transient(raised(ConnectionRefusedError(), "asyncpg.pool", module))

    @each("error", [ConnectionRefusedError(), BrokerUnavailable("nats: down"), raised(OSError(), *LOOPS)])
    def test_a_socket_of_which_nobody_knows_who_wanted_it(self, error: OSError) -> None:
        assert not is_transient(error)

    @each("error", [InterfaceError("select", {}, Refused(None)), asyncpg.InterfaceError("another operation")])
    def test_a_session_that_was_used_twice_at_once(self, error: Exception) -> None:
        assert not is_transient(error)

    @each("cause", [None, Refused("40001"), raised(ConnectionRefusedError(), "asyncpg")])
    def test_a_time_that_is_over_whatever_caused_it(self, cause: BaseException | None) -> None:
        late = raised(caused(TimeoutError(), cause), "asyncpg")
        assert not is_transient(late)
        assert not is_transient(caused(ValueError("no"), late))

    def test_what_was_said_before_the_time_was_over(self) -> None:
        assert is_transient(caused(Refused("08006"), TimeoutError()))

    @each("error", [None, ValueError("no"), *ways("57014"), *ways("23505"), *ways("42P01")])
    def test_any_other_error(self, error: BaseException | None) -> None:
        assert not is_transient(error)

    @each("cause", [Refused("40001"), PoolExhausted(), raised(ConnectionRefusedError(), "asyncpg")])
    def test_an_error_that_was_raised_from_one_that_passes(self, cause: BaseException) -> None:
        assert is_transient(caused(ValueError("no"), cause))

    def test_an_error_that_was_raised_while_one_that_passes_was_handled(self) -> None:
        error = ValueError("no")
        error.__context__ = Refused("40001")
        assert not is_transient(error)

    @each(("between", "passes"), [(MOST_LINKS - 1, True), (MOST_LINKS, False)])
    def test_a_cause_so_far_away(self, between: int, passes: bool) -> None:
        error: BaseException = Refused("40001")
        for _ in range(between):
            error = caused(ValueError("no"), error)
        assert is_transient(error) is passes

    def test_an_error_that_is_its_own_cause(self) -> None:
        error = ValueError("no")
        assert not is_transient(caused(error, caused(ValueError("other"), error)))


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


class TestSecrets:
    def test_parameters_are_hidden_in_causes_and_groups(self) -> None:
        alone, grouped = wrapped(Refused("23505")), wrapped(Refused("23505"))
        error = caused(ValueError("no"), ExceptionGroup("several", [alone, caused(KeyError(), grouped)]))
        # A circle has an end as well.
        hide_parameters(caused(alone, error))
        assert SECRET not in f"{alone} {grouped}"

    def test_parameters_are_hidden_of_what_was_handled_at_the_time(self) -> None:
        error, before = ValueError("no"), wrapped(Refused("23505"))
        error.__context__ = before
        hide_parameters(error)
        assert SECRET not in str(before)

    def test_nothing_is_nothing(self) -> None:
        hide_parameters(None)
        assert said(None) == "None"

    def test_neither_parameters_nor_rows_are_said(self, violation: DBAPIError) -> None:
        assert SECRET in repr(violation.orig)
        for error in (violation, violation.orig):
            assert ("violates check constraint" in said(error), SECRET in said(error)) == (True, False)

    def test_only_the_first_line_is_said_of_what_sqlalchemy_wraps(self) -> None:
        assert said(wrapped(Refused("23505", f"duplicate key\nDETAIL: {SECRET}"))) == "DBAPIError('duplicate key')"

    def test_no_body_is_said_that_is_no_text(self) -> None:
        with pytest.raises(UnicodeDecodeError) as failure:
            f"{SECRET}\xff".encode("latin-1").decode()
        assert said(failure.value).startswith("UnicodeDecodeError(")
        assert SECRET not in said(failure.value)

    def test_what_a_silent_repr_leaves_out_is_said(self) -> None:
        class Terse(Exception):
            """An error as redis-py has them: its repr does not have what it says."""

            def __repr__(self) -> str:
                return "network:ConnectionError"

        assert said(Terse("connection refused")) == "network:ConnectionError('connection refused')"
        assert said(Terse()) == "network:ConnectionError"

    def test_an_error_that_cannot_be_rendered_is_named(self) -> None:
        class Broken(Exception):
            def __repr__(self) -> str:
                raise KeyError

        assert said(Broken()) == "Broken (KeyError while rendering it)"

    def test_no_more_is_said_than_fits_into_a_line(self) -> None:
        assert (len(said(ValueError("x" * 2 * MOST_SAID))), said(ValueError("x" * 2000))[-1]) == (MOST_SAID, "…")
