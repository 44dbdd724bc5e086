"""An address as a user writes it down, in the words of each driver, over what the engine has."""

from typing import Any

import pytest

from faststream_outbox._internal.connections.address import Address
from faststream_outbox.errors import InvalidOption
from tests.cases import each

ENGINE: dict[str, dict[str, Any]] = {
    "asyncpg": {"host": "pooler", "port": 6432, "user": "app", "password": "secret", "database": "shop"},
    "psycopg": {"host": "pooler", "port": 6432, "user": "app", "password": "secret", "dbname": "shop"},
}
ACCOUNT = {"user": "app", "password": "secret"}
TEXT = "postgresql://?sslmode=verify-ca&sslrootcert=%2Fca.pem"


def arguments(driver: str, dsn: str, **more: Any) -> dict[str, Any]:
    return Address.of(dsn).arguments(driver, ENGINE[driver] | more)


SHOP = {**ACCOUNT, "database": "shop"}
DB, DB_OF_LIBPQ = {**SHOP, "host": ["db"]}, {**ACCOUNT, "host": "db", "port": "5432", "dbname": "shop"}
CALLED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "asyncpg": [
        ("postgresql://db", DB),
        ("postgresql:///", SHOP),
        ("postgres://db:5433/other", {**ACCOUNT, "host": ["db"], "port": [5433], "database": "other"}),
        ("postgresql+psycopg://app@db/", DB),
        ("postgresql://op@db/", {"user": "op", "host": ["db"], "database": "shop"}),
        ("postgresql://o%40p:p%2Fw@db/", {"user": "o@p", "password": "p/w", "host": ["db"], "database": "shop"}),
        ("postgresql://a,b:2/", {**SHOP, "host": ["a", "b"], "port": [5432, 2]}),
        ("postgresql:///?host=a:1&host=b:2", {**SHOP, "host": ["a", "b"], "port": [1, 2]}),
        ("postgresql:///?host=/tmp&port=7", {**SHOP, "host": ["/tmp"], "port": [7]}),
        ("postgresql://[::1]:7/", {**SHOP, "host": ["::1"], "port": [7]}),
        ("postgresql://db/?ssl=verify-ca&sslrootcert=/ca.pem", {**DB, "dsn": TEXT}),
        (
            "postgresql://db/?application_name=ear&connect_timeout=5&keepalives_idle=3",
            {**DB, "timeout": 5.0, "server_settings": {"application_name": "ear"}},
        ),
    ],
    "psycopg": [
        ("postgresql://db", DB_OF_LIBPQ),
        ("postgresql:///", {**ACCOUNT, "dbname": "shop"}),
        ("postgresql+asyncpg://op@db:7/x", {"user": "op", "host": "db", "port": "7", "dbname": "x"}),
        ("postgresql://a,b:2/", {**ACCOUNT, "host": "a,b", "port": "5432,2", "dbname": "shop"}),
        (
            "postgresql://db/?ssl=require&command_timeout=5&prepared_statement_cache_size=0&timeout=3",
            {**DB_OF_LIBPQ, "sslmode": "require", "connect_timeout": "3"},
        ),
    ],
}


@each(
    ("driver", "dsn", "expected"),
    [(driver, dsn, expected) for driver, cases in CALLED.items() for dsn, expected in cases],
)
def test_driver_is_called_with(driver: str, dsn: str, expected: dict[str, Any]) -> None:
    assert arguments(driver, dsn) == expected


def test_settings_of_the_engine_stay() -> None:
    context, password = object(), lambda: "token"
    kept = {"ssl": context, "password": password, "statement_cache_size": 0, "server_settings": {"jit": "off"}}
    found = arguments("asyncpg", "postgresql://db/?application_name=ear", **kept)
    assert found["ssl"] is context
    assert found["password"] is password
    assert found["statement_cache_size"] == 0
    assert found["server_settings"] == {"jit": "off", "application_name": "ear"}
    assert arguments("psycopg", "postgresql://db", sslmode="verify-full", sslrootcert="/ca")["sslmode"] == "verify-full"


def test_an_address_that_says_sslmode_takes_the_place_of_the_engines() -> None:
    found = arguments("asyncpg", "postgresql://db/?sslmode=disable", ssl=object())
    assert "ssl" not in found
    assert found["dsn"] == "postgresql://?sslmode=disable"
    assert arguments("psycopg", "postgresql://db/?sslmode=disable", sslmode="require")["sslmode"] == "disable"


@each("dsn", ["", "db", "mysql://db", "host=db dbname=shop"])
def test_what_is_no_address_is_refused(dsn: str) -> None:
    with pytest.raises(InvalidOption, match="listen_dsn"):
        Address.of(dsn)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Address.of("postgresql://app:secret@db/"))


@each("place", ["h:0/x", "h:65536/x", "h:-1/x", "h:a/x", "h:٣/x", "h:" + "9" * 5000 + "/x", "h/x?port=a"])
def test_port_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidOption, match="port"):
        Address.of(f"postgresql://{place}")
