"""What the broker was given as its engine, looked at before anything is built on it.

An engine stays the application's: the broker never closes it. An address becomes an engine of the broker's own,
which connects when it is first used and is closed by `stop`; after that the next use connects again. Called by
the broker.
"""

from importlib.util import find_spec

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.errors import InvalidOption, InvalidOptionType

_EXAMPLE = "postgresql+asyncpg://user:password@host/database"
_DRIVERS = ("asyncpg", "psycopg", "psycopg_async")
_CHOICE = "Use postgresql+asyncpg://… or postgresql+psycopg://…, the drivers that workers can wait with."
_WITHOUT_DRIVER = ("postgresql", "postgres")


def given_engine(given: object) -> tuple[AsyncEngine | None, bool]:
    """The engine, and whether it is the broker's own; or the error that says what to pass instead."""
    if given is None:
        return None, False
    if isinstance(given, str | URL):
        return create_async_engine(_checked_address(given)), True
    if isinstance(given, Engine):
        msg = (
            "OutboxBroker got a sync Engine, whose connections would block the event loop. Pass "
            f"create_async_engine('{_EXAMPLE}'). Sessions of the sync engine can publish with broker.publish_sync."
        )
        raise InvalidOptionType(msg)
    if not isinstance(given, AsyncEngine):
        msg = (
            f"OutboxBroker got a {type(given).__name__} for its engine. Pass the AsyncEngine behind it, "
            f"or an address, '{_EXAMPLE}'; sessions go to publish(…, session=…)."
        )
        raise InvalidOptionType(msg)
    _check_driver(given.dialect.name, given.dialect.driver)
    return given, False


def _checked_address(given: str | URL) -> URL:
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        # Not repeated, and not chained: there may be a password in it.
        msg = f"The address of the database cannot be read. It looks like this: {_EXAMPLE}"
        raise InvalidOption(msg) from None
    if url.drivername in _WITHOUT_DRIVER:
        return _with_driver(url)
    name, _, driver = url.drivername.partition("+")
    _check_driver(name, driver)
    return url


def _with_driver(url: URL) -> URL:
    for driver in ("asyncpg", "psycopg"):
        if find_spec(driver) is not None:
            break
    else:
        msg = "No driver for PostgreSQL is installed: pip install asyncpg, or pip install 'psycopg[binary]'."
        raise InvalidOption(msg)
    if driver == "asyncpg" and "sslmode" in url.query:
        # libpq's name of it, as in addresses that hosting services hand out.
        query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
        url = url.set(query=query)
    return url.set(drivername=f"postgresql+{driver}")


def _check_driver(database: str, driver: str) -> None:
    if database != "postgresql":
        msg = f"The outbox lives in PostgreSQL, and this is an address of {database}. {_CHOICE}"
        raise InvalidOption(msg)
    if driver not in _DRIVERS:
        msg = f"The driver {driver!r} cannot work here. {_CHOICE}"
        raise InvalidOption(msg)
