"""An engine from an address with any driver's name in it, or none: asyncpg or psycopg, whichever is installed.

The address is what an operator has at hand: the application's, with a driver for sync code, or a hosting service's,
with libpq's options. The connections are named, and give up a server that does not answer. Used by `place`.
"""

from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.connections.address import Address
from faststream_outbox._internal.options import is_encodable

NAME = "faststream-outbox cli"
CONNECT_SECONDS = "10"
_DRIVERS = ("asyncpg", "psycopg")
# So that it works behind a pooler too. A command sends each statement once.
_WITHOUT_PREPARED: dict[str, dict[str, Any]] = {
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str},
    "psycopg": {"prepare_threshold": None},
}
_EXAMPLE = "postgresql://user:password@host:5432/database"


def make_engine(dsn: str) -> AsyncEngine:
    """An engine that connects when it is first used."""
    driver = _driver(dsn)
    address = _address(dsn)
    settings = {"application_name": NAME, "connect_timeout": CONNECT_SECONDS, **address.settings}
    arguments = {**Address(address.hosts, settings).arguments(driver, {}), **_WITHOUT_PREPARED[driver]}
    return create_async_engine(URL.create(f"postgresql+{driver}"), connect_args=arguments, pool_size=2)


def _address(dsn: str) -> Address:
    scheme, _, rest = dsn.partition("://")
    try:
        if scheme.partition("+")[0] in ("postgresql", "postgres") and _is_text(unquote(dsn)):
            # Without the driver's name, which may be none that an address can have, such as psycopg_async.
            return Address.of(f"postgresql://{rest}")
    except ValueError:
        pass
    # The text is not repeated: there may be a password in it.
    msg = f"--dsn is no address of PostgreSQL. It looks like this: {_EXAMPLE}"
    raise Refusal(msg)


def _is_text(given: str) -> bool:
    """Whether drivers can send it: they and the functions below them fail at NUL and at lone surrogates."""
    return "\x00" not in given and is_encodable(given)


def _driver(dsn: str) -> str:
    """The one that the address names, if it will do; else one that is installed."""
    named = dsn.partition("://")[0].partition("+")[2].removesuffix("_async")
    for driver in sorted(_DRIVERS, key=lambda each: each != named):
        if find_spec(driver) is not None:
            return driver
    msg = "No driver for PostgreSQL is installed: pip install asyncpg, or pip install 'psycopg[binary]'."
    raise Refusal(msg)
