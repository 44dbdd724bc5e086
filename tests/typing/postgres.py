"""The types that a user of the private server sees; checked by mypy and basedpyright, not run."""

from typing import assert_type

from faststream_outbox.testing.postgres import PostgresServer

with PostgresServer.start(version=16, settings={"fsync": "off"}) as server:
    assert_type(server, PostgresServer)
    assert_type(server.dsn(), str)
    assert_type(server.pid, int)
    assert_type(server.run("psql", "-c", "SELECT 1"), str)
