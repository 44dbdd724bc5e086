"""Who we are to the server: names that fit and can be read back, and ids that leases begin with."""

import asyncio
import os
import re
import string
from typing import Any, get_args
from uuid import RFC_4122, UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import (
    MOST_BYTES,
    ConnectionName,
    Identity,
    Role,
    name_of,
    parse_name,
    worker_id_of,
)
from tests.cases import each
from tests.publish.ways import plain

ROLES = get_args(Role)
ids = st.text("0123456789abcdef", min_size=8, max_size=8)
pids = st.integers(1, 2**31 - 1)
hosts = st.text(string.ascii_letters + string.digits + ".-_", min_size=1, max_size=12)


@given(ids, st.sampled_from(ROLES), hosts, pids)
def test_name_says_who_it_is(worker_id: str, role: Role, host: str, pid: int) -> None:
    assert parse_name(name_of(worker_id, role, host, pid)) == ConnectionName(worker_id, role, host, pid, None)


@given(ids, st.sampled_from(ROLES), st.text(), pids, st.text())
def test_name_fits_and_can_be_read_whatever_host_and_application_are_called(
    worker_id: str, role: Role, host: str, pid: int, application: str
) -> None:
    name = name_of(worker_id, role, host, pid, application)
    assert len(name.encode()) <= MOST_BYTES
    assert name.isascii()
    found = parse_name(name)
    assert found is not None
    assert (found.worker_id, found.role, found.pid) == (worker_id, role, pid)


@given(st.text())
def test_name_of_a_stranger_is_not_ours(name: str) -> None:
    assert parse_name(name) is None


@each(
    "name",
    [
        None,
        "",
        "outbox",
        "psql",
        "outbox 3f2a9c1b claim web/4711\n",
        "outbox 3F2A9C1B claim web/4711",
        "outbox 3f2a9c1 claim web/4711",
        "outbox 3f2a9c1b claim web/",
        "outbox 3f2a9c1b claim /4711",
        "outbox 3f2a9c1b claim web/-1",
        "outbox 3f2a9c1b claim web/99999999999",
        "outbox 3f2a9c1b claim web/٣",
        "outbox 3f2a9c1b CLAIM web/4711",
        "outbox 3f2a9c1b claim we b/4711",
        "outbox 3f2a9c1b claim web/4711 ",
        "outbox 3f2a9c1b claim web/4711 <b>\x1b[0m",
        " outbox 3f2a9c1b claim web/4711",
    ],
)
def test_name_that_only_looks_like_ours_is_a_strangers(name: str | None) -> None:
    assert parse_name(name) is None


def test_of_a_long_host_both_ends_are_shown_and_there_is_room_for_the_applications_own_name() -> None:
    found = parse_name(name_of("3f2a9c1b", "claim", "billing-worker-deployment-7d9f8b6c5d-x2x9z", 4711))
    assert found is not None
    assert re.fullmatch("billing-worker.*~.*b6c5d-x2x9z", found.host)
    found = parse_name(name_of("3f2a9c1b", "overview", "h" * 80, 2**31 - 1, "billing"))
    assert found is not None
    assert found.application == "billing"


def test_name_of_ours_is_not_taken_for_the_applications() -> None:
    first = name_of("3f2a9c1b", "claim", "web", 1)
    assert name_of("00000000", "claim", "web", 1, first) == "outbox 00000000 claim web/1"


def test_tokens_begin_with_the_worker_id_and_are_random_uuids() -> None:
    identity = Identity()
    tokens = [identity.token() for _ in range(1000)]
    assert len(set(tokens)) == len(tokens)
    assert {worker_id_of(token) for token in tokens} == {identity.worker_id}
    assert {(token.version, token.variant) for token in tokens} == {(4, RFC_4122)}
    assert worker_id_of(None) is None
    assert all(UUID(str(token)) == token for token in tokens)


def test_identity_is_another_once_it_is_renewed() -> None:
    identity = Identity()
    before = identity.worker_id
    assert identity.worker_id == before
    identity.renew()
    assert identity.worker_id != before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_is_somebody_else() -> None:
    identity = Identity()
    before = identity.worker_id
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, identity.token().hex[:8].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() != before
    assert identity.worker_id == before


def names(database_url: URL, identity: Identity) -> list[ConnectionName]:
    """What the server knows of connections of this identity."""
    with psycopg.connect(plain(database_url)) as connection:
        rows = connection.execute("select application_name from pg_stat_activity").fetchall()
    found = [parse_name(name) for (name,) in rows]
    return [each for each in found if each is not None and each.worker_id == identity.worker_id]


async def test_server_knows_the_connection_by_its_name(driver_engine: AsyncEngine, database_url: URL) -> None:
    identity = Identity()
    connection = DedicatedConnection(driver_engine, identity=identity, role="claim")
    await connection.open()
    (found,) = names(database_url, identity)
    assert (found.role, found.pid) == ("claim", os.getpid())
    await connection.close()


OWN = r"it's a \ \x27; drop"


@pytest.mark.parametrize(
    ("driver", "settings"),
    [("asyncpg", {"server_settings": {"application_name": OWN}}), ("psycopg", {"application_name": OWN})],
)
async def test_applications_own_name_is_kept_as_it_is(driver: str, settings: dict[str, Any], database_url: URL) -> None:
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"), connect_args=settings)
    identity = Identity()
    connection = DedicatedConnection(engine, identity=identity, role="read")
    await connection.open()
    (found,) = names(database_url, identity)
    assert found.application is not None
    assert OWN.startswith(found.application)
    await connection.close()
    await engine.dispose()


async def test_sibling_is_of_the_same_worker(engine: AsyncEngine, database_url: URL) -> None:
    identity = Identity()
    one = DedicatedConnection(engine, identity=identity, role="clean")
    other = one.sibling("guard")
    await asyncio.gather(one.open(), other.open())
    assert {each.role for each in names(database_url, identity)} == {"clean", "guard"}
    await asyncio.gather(one.close(), other.close())
