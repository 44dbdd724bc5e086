"""A server that accepts nothing but TLS: every connection of queues and topics comes with it."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import MetaData, NullPool
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.log import make_log_tables
from faststream_outbox.testing.postgres import PostgresServer
from tests.conftest import SETTINGS
from tests.servers.programs import postgres
from tests.sql.tls import Certificates, make_certificates
from tests.waiting import eventually

pytestmark = pytest.mark.slow

RULES = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"
ENCRYPTED = """
    select s.ssl from pg_stat_activity a join pg_stat_ssl s using (pid)
    where a.backend_type = 'client backend' and a.client_addr is not null
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def secure_server(certificates: Certificates) -> Iterator[PostgresServer]:
    """Debian's PostgreSQL, since the wheel's is made without OpenSSL."""
    with PostgresServer.start(version=postgres(15), settings=SETTINGS) as server:
        owner = server.data.stat()
        for source in (certificates.certificate, certificates.key):
            file = server.data / source.name
            file.write_bytes(source.read_bytes())
            file.chmod(0o600)
            os.chown(file, owner.st_uid, owner.st_gid)
        (server.data / "pg_hba.conf").write_text(RULES)
        with (server.data / "postgresql.conf").open("a") as file:
            file.write("ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\n")
        server.restart()
        yield server


@pytest.fixture(params=["asyncpg", "psycopg"])
async def safe(
    request: pytest.FixtureRequest, secure_server: PostgresServer, certificates: Certificates
) -> AsyncIterator[AsyncEngine]:
    url = secure_server.dsn(driver=request.param)
    engine = create_async_engine(url, connect_args=certificates.options(request.param), poolclass=NullPool)
    yield engine
    await engine.dispose()


async def test_every_connection_is_encrypted(safe: AsyncEngine, secure_server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(secure_server.dsn(driver="") + "?sslmode=disable")
    metadata = MetaData()
    table, log_tables = make_outbox_table(metadata), make_log_tables(metadata, "outbox_log")
    broker = OutboxBroker(
        safe, outbox_table=table, dlq_table=None, log_tables=log_tables, listen_dsn=secure_server.dsn(driver="")
    )
    seen: set[str] = set()

    @broker.subscriber("orders")
    async def handle_order(body: str) -> None:
        seen.add(body)

    @broker.subscriber(topic="shop", group="billing")
    async def handle_fact(body: str) -> None:
        seen.add(body)

    async with safe.begin() as connection:
        await connection.run_sync(metadata.create_all)
    try:
        await broker.start()
        async with AsyncSession(safe) as session, session.begin():
            await broker.publish("order", queue="orders", session=session)
            await broker.publish("fact", topic="shop", session=session)
        await eventually(lambda: seen == {"order", "fact"})
        with psycopg.connect(secure_server.socket_dsn(driver=""), autocommit=True) as watcher:

            def are_open() -> list[Any]:
                """Of queues: claim, scan, settle, listen; of topics: read, sequence, listen."""
                open_ones = watcher.execute(ENCRYPTED).fetchall()
                return open_ones if len(open_ones) == 7 else []

            found = await eventually(are_open)
        assert found == [(True,)] * 7
    finally:
        await broker.stop()
        async with safe.begin() as connection:
            await connection.run_sync(metadata.drop_all)
