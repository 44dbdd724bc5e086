"""Messages written by a plain INSERT, as other languages do: only a queue and a payload are needed."""

from sqlalchemy import URL

from faststream_outbox import events
from faststream_outbox.testing.postgres import PostgresAddress
from tests.queue.conftest import driver_rig
from tests.queue.rig import POLLING, Rig, Seen

__all__ = ["driver_rig"]

BY_PSQL = (
    "INSERT INTO outbox (queue, payload, headers, key, priority)"
    """ VALUES ('orders', convert_to('{"id": 7}', 'UTF8'), '{"content-type": "application/json"}', 'k', 3)"""
)


async def test_insert_of_queue_and_payload_is_handled(driver_rig: Rig) -> None:
    handle = Seen()
    await driver_rig.work(handle, **POLLING)
    await driver_rig.sql("INSERT INTO outbox (queue, payload) VALUES ('orders', 'one'), ('orders', 'two')")
    await driver_rig.witness.wait(events.Handled, count=2)
    assert handle.bodies == ["one", "two"]
    assert len({claim.message_id for claim in handle.claims} - {None}) == 2


async def test_insert_by_psql_is_handled(driver_rig: Rig, server: PostgresAddress, database_url: URL) -> None:
    handle = Seen()
    await driver_rig.work(handle, **POLLING)
    server.run("psql", "-v", "ON_ERROR_STOP=1", "-d", str(database_url.database), "-c", BY_PSQL)
    await driver_rig.witness.wait(events.Handled)
    (claim,) = handle.claims
    assert (claim.payload, claim.key, claim.priority) == (b'{"id": 7}', "k", 3)
    assert claim.headers == {"content-type": "application/json"}
