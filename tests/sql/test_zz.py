import psycopg, psycopg2, pytest, asyncpg
from tests.publish.ways import WAYS
from faststream_outbox.envelope import Envelope
@pytest.mark.parametrize("sizes", [[1_000_000_000], [600_000_000], [400_000_000], [520_000_000,520_000_000], [300_000_000, 300_000_000], [250_000_000, 10]])
@pytest.mark.parametrize("name", ["raw asyncpg", "raw psycopg", "raw psycopg2"])
async def test_x(database_url, table, name, sizes):
    async with WAYS[name](database_url, table) as way:
        await way.begin()
        await way.publish(*[Envelope(queue="q", body=bytes(s)) for s in sizes])
        await way.rollback()
