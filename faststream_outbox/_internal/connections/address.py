"""An address that a user wrote down, `listen_dsn`, and connections to it by an engine's own settings.

It is written as libpq writes it or as SQLAlchemy does, for either driver; the driver is the engine's. What it does not
say is the engine's: user and password, TLS, and whatever else is in `connect_args`. The engine makes the connections as
it makes its own (passwords that are fetched for each, the application's `do_connect` hooks, which see the new address),
except for where they go. An engine with a creator of its own cannot be sent elsewhere: then the address stands alone,
and must say by itself whether it wants TLS. Used by `dedicated`.
"""

from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection

from faststream_outbox.errors import ConnectionUnusable, InvalidOption, InvalidOptionType

DEFAULT_PORT = "5432"
_TRUE, _FALSE = "verify-full", "disable"
"""What asyncpg means by `ssl=True` and `ssl=False`, in libpq's words."""

# Options of one driver or of SQLAlchemy that the other one would stumble over.
_OF_ASYNCPG = {
    "command_timeout",
    "statement_cache_size",
    "max_cached_statement_lifetime",
    "max_cacheable_statement_size",
}
_OF_ALCHEMY = {"async_fallback", "prepared_statement_cache_size", "prepared_statement_name_func"}
_OF_LIBPQ = {
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "gssencmode",
    "sslcompression",
    "sslsni",
    "sslcertmode",
    "load_balance_hosts",
    "client_encoding",
    "fallback_application_name",
}
# What asyncpg reads from the text of an address alone.
_IN_TEXT = {
    "service",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
}
_ARGUMENTS_OF_ASYNCPG = {"user", "password", "passfile", "target_session_attrs", "krbsrvname", "gsslib"}


class Host(NamedTuple):
    """A server's name, or the directory of its socket; the port is empty where none is given."""

    name: str
    port: str


def _check_text(dsn: object) -> None:
    if not isinstance(dsn, str):
        kind = type(dsn).__name__
        msg = f"listen_dsn must be a str, such as postgresql://user:password@host:5432/database, not {kind}."
        raise InvalidOptionType(msg)


@dataclass(frozen=True, slots=True)
class Address:
    """A server, and what is to be different about connections to it, in libpq's words."""

    hosts: tuple[Host, ...]
    settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, dsn: str) -> "Address":
        """Read an address."""
        _check_text(dsn)
        parts = urlsplit(dsn)
        if parts.scheme.partition("+")[0] not in ("postgresql", "postgres"):
            msg = "listen_dsn is no address of PostgreSQL. Write it as postgresql://user:password@host:5432/database."
            raise InvalidOption(msg)
        account, _, places = parts.netloc.rpartition("@")
        user, _, password = account.partition(":")
        given = {"user": unquote(user), "password": unquote(password), "dbname": unquote(parts.path[1:])}
        hosts = [_host(unquote(place)) for place in places.split(",") if place]
        ports: list[str] = []
        named: list[Host] = []
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            match name:
                case "host":
                    # SQLAlchemy writes `host=one:5432&host=other:5432`, libpq `host=one,other&port=5432,5432`.
                    named += [_host(place) for place in value.split(",")]
                case "port":
                    ports = value.split(",")
                case "database":
                    given["dbname"] = value
                case "ssl":
                    given["sslmode"] = {"true": _TRUE, "false": _FALSE}.get(value.lower(), value)
                case "timeout":
                    given["connect_timeout"] = value
                case _:
                    given[name] = value
        hosts = named or hosts
        if ports:
            hosts = [
                host._replace(port=ports[place % len(ports)]) for place, host in enumerate(hosts or [Host("", "")])
            ]
        for host in hosts:
            if host.port and not (host.port.isascii() and host.port.isdigit() and 0 < int(host.port[:6]) < 65536):
                # Python would say so in the midst of connecting, and name neither the option nor the address.
                msg = "listen_dsn has a port that is none: write a number from 1 to 65535, or leave it out."
                raise InvalidOption(msg)
        return cls(tuple(hosts), {name: value for name, value in given.items() if value})

    @property
    def is_local(self) -> bool:
        """Whether it is a socket of this machine, where there is no TLS."""
        return all(not host.name or host.name.startswith("/") for host in self.hosts)

    def arguments(self, driver: str, inherited: Mapping[str, Any]) -> dict[str, Any]:
        """What a driver is called with: the engine's arguments, and this address in their place."""
        kept = {name: value for name, value in inherited.items() if name not in ("host", "hostaddr", "port", "dsn")}
        if self.settings.get("user", kept.get("user")) != kept.get("user"):
            # The password of somebody else.
            kept.pop("password", None)
            kept.pop("passfile", None)
        return self._of_asyncpg(kept) if driver == "asyncpg" else self._of_libpq(kept)

    def _of_libpq(self, kept: dict[str, Any]) -> dict[str, Any]:
        place: dict[str, str] = {}
        if self.hosts:
            place = {"host": ",".join(host.name for host in self.hosts)}
            place["port"] = ",".join(host.port or DEFAULT_PORT for host in self.hosts)
        foreign = _OF_ASYNCPG | _OF_ALCHEMY
        given = {**place, **self.settings}
        return kept | {name: value for name, value in given.items() if name not in foreign}

    def _of_asyncpg(self, kept: dict[str, Any]) -> dict[str, Any]:
        if any(host.name for host in self.hosts):
            kept["host"] = [host.name for host in self.hosts]
        if any(host.port for host in self.hosts):
            kept["port"] = [int(host.port or DEFAULT_PORT) for host in self.hosts]
        if "sslmode" in self.settings:
            # An argument would go before what the text says.
            kept.pop("ssl", None)
            kept.pop("direct_tls", None)
        text: dict[str, str] = {}
        server: dict[str, str] = {}
        for name, value in self.settings.items():
            if name in _IN_TEXT:
                text[name] = value
            elif name in _ARGUMENTS_OF_ASYNCPG:
                kept[name] = value
            elif name == "dbname":
                kept["database"] = value
            elif name == "connect_timeout":
                kept["timeout"] = float(value)
            elif name in _OF_ASYNCPG:
                kept[name] = float(value) if name == "command_timeout" else int(value)
            elif name not in _OF_ALCHEMY | _OF_LIBPQ:
                server[name] = value
        if text:
            kept["dsn"] = f"postgresql://?{urlencode(text)}"
        if server:
            kept["server_settings"] = {**(kept.get("server_settings") or {}), **server}
        return kept


def _host(place: str) -> Host:
    if place.startswith(("/", "@")):
        return Host(place, "")
    if place.startswith("["):
        name, _, port = place[1:].partition("]")
        return Host(name, port.removeprefix(":"))
    name, colon, port = place.rpartition(":")
    return Host(name, port) if colon and ":" not in name else Host(place, "")


class Dialling:
    """One engine's way to another address."""

    def __init__(self, engine: AsyncEngine, address: Address) -> None:
        self.address = address
        self.was_heeded = False
        """Whether the engine asked where to go; one with a creator does not."""
        self._engine = engine
        self._alone: Engine | None = None
        if not event.contains(engine.sync_engine, "do_connect", _redirect):
            event.listen(engine.sync_engine, "do_connect", _redirect)

    def connect(self) -> PoolProxiedConnection:
        """Open a connection; called where SQLAlchemy's synchronous code runs."""
        if self._alone is not None:
            return self._alone.pool.connect()
        before = _DIALLING.set(self)
        try:
            proxied = self._engine.sync_engine.pool.recreate().connect()
        finally:
            _DIALLING.reset(before)
        if self.was_heeded:
            return proxied
        proxied.invalidate()
        if "sslmode" not in self.address.settings and not self.address.is_local:
            msg = (
                "The engine has a creator, or a do_connect hook that connects by itself: listen_dsn cannot take over "
                "its settings. Say in listen_dsn "
                "whether it wants TLS: ?sslmode=verify-full&sslrootcert=…, or ?sslmode=disable."
            )
            raise ConnectionUnusable(msg)
        driver = self._engine.dialect.driver
        made = create_async_engine(
            URL.create(f"postgresql+{driver}"), connect_args=self.address.arguments(driver, {}), poolclass=NullPool
        )
        self._alone = made.sync_engine
        return self._alone.pool.connect()


_DIALLING: ContextVar[Dialling | None] = ContextVar("faststream_outbox.dialling", default=None)


def _redirect(
    dialect: Dialect, record: ConnectionPoolEntry, arguments: Any, options: MutableMapping[str, Any]
) -> DBAPIConnection | None:
    dialling = _DIALLING.get()
    if dialling is None:
        return None
    dialling.was_heeded = True
    own = dialling.address.arguments(dialect.driver, options)
    before = _DIALLING.set(None)
    try:
        # All of them, whenever they came: those before this hook saw the engine's address, those after it nothing.
        for hook in dialect.dispatch.do_connect:
            connection: DBAPIConnection | None = hook(dialect, record, arguments, own)
            if connection is not None:
                return connection
        return dialect.connect(*arguments, **own)
    finally:
        _DIALLING.reset(before)
