"""A client with its tables, and what tests of the queue engine do with them.

Workers here do not poll unless the test says so: what a wake-up should have brought must not be
brought by a look from the beginning that happens to come along.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.publish import publish
from faststream_outbox.queue import DeadLetters, OutboxClient, Worker
from tests.queue.witness import Witness

NO_POLLING: Mapping[str, Any] = {"min_fetch_interval": 3600.0, "max_fetch_interval": 3600.0}
POLLING: Mapping[str, Any] = {"min_fetch_interval": 0.05, "max_fetch_interval": 0.05}

QUIET_SECONDS = 1.5
"""After this time without a message no client looks for what it was not told of."""

Row = Mapping[str, Any]


class Cost(NamedTuple):
    """What one run of a statement touched."""

    buffers: int
    """Pages, counted each time they were looked at."""
    rows: int
    """Rows of the outbox table that were looked at, kept or not."""


class Rig:
    """Makes clients and workers, publishes, looks into the tables, and ends what it made."""

    def __init__(self, engine: AsyncEngine, table: Table, dlq_table: Table) -> None:
        self.engine = engine
        self.table = table
        self.dlq_table = dlq_table
        self.witness = Witness()
        self._clients: list[OutboxClient] = []
        self._workers: list[Worker] = []
        self.client = self.another_client()

    @property
    def letters(self) -> DeadLetters:
        return DeadLetters(self.client)

    def another_client(self, *, dead_letters: bool = True, **settings: Any) -> OutboxClient:
        """A client of the same tables, as another process would have it."""
        settings = {"engine": self.engine, "log": None} | settings
        client = OutboxClient(
            settings.pop("engine"), self.table, dlq_table=self.dlq_table if dead_letters else None, **settings
        )
        client.events.subscribe(self.witness)
        self._clients.append(client)
        return client

    def worker(
        self, handle: Any, queues: str | list[str] = "orders", *, client: OutboxClient | None = None, **options: Any
    ) -> Worker:
        """A worker that is not started."""
        client = client or self.client
        worker = Worker(client.engine, self.table, queues, handle, client=client, **{**NO_POLLING, **options})
        self._workers.append(worker)
        return worker

    async def work(self, handle: Any, queues: str | list[str] = "orders", **options: Any) -> Worker:
        """A worker that is started."""
        worker = self.worker(handle, queues, **options)
        await worker.start()
        return worker

    async def publish(self, *envelopes: Envelope, client: OutboxClient | None = None) -> list[int]:
        """Publish in one transaction, and tell the client."""
        wakeups = (client or self.client).wakeups
        async with AsyncSession(self.engine) as session, session.begin():
            ids = await publish(session, self.table, *envelopes, wakeups=wakeups)
        return [number for number in ids if number is not None]

    async def put(
        self,
        *bodies: str,
        queue: str = "orders",
        due_in: float | None = None,
        client: OutboxClient | None = None,
        **fields: Any,
    ) -> list[int]:
        """Publish these bodies to one queue."""
        if due_in is not None:
            fields["activate_in"] = timedelta(seconds=due_in)
        envelopes = [Envelope(queue=queue, body=body.encode(), **fields) for body in bodies]
        return await self.publish(*envelopes, client=client)

    async def sql(self, statement: str, **values: Any) -> Sequence[Row]:
        """Run a statement in a transaction of its own; `{t}` and `{d}` stand for the two tables."""
        async with self.engine.begin() as connection:
            filled = statement.replace("{t}", self.table.name).replace("{d}", self.dlq_table.name)
            result = await connection.execute(text(filled), values)
            return result.mappings().all() if result.returns_rows else []

    async def one(self, statement: str, **values: Any) -> Any:
        """The first value of the first row."""
        return next(iter((await self.sql(statement, **values))[0].values()))

    async def rows(self) -> Sequence[Row]:
        """The outbox table, by id."""
        return await self.sql("select * from {t} order by id")

    async def row(self) -> Row:
        """The only row of the outbox table."""
        (row,) = await self.rows()
        return row

    async def dead(self) -> Sequence[Row]:
        """The dead letters, by id."""
        return await self.sql("select * from {d} order by id")

    async def leased(self) -> int:
        """How many messages are leased now."""
        return int(await self.one("select count(*) from {t} where acquired_token is not null"))

    async def is_empty(self) -> bool:
        """Whether the outbox has no message left."""
        return not await self.one("select count(*) from {t}")

    async def explain(self, file: str, name: str, values: Mapping[str, Any], connection: AsyncConnection) -> Cost:
        """Run a named statement in the connection's transaction and say what it touched."""
        statement = statements(file, self.client.names)[name]
        plan = await connection.exec_driver_sql(
            f"explain (analyze, buffers, timing off, format json) {statement.dollar}", statement.arguments(values)
        )
        answer = plan.scalar_one()
        tree = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
        return Cost(tree["Shared Hit Blocks"] + tree["Shared Read Blocks"], _looked_at(tree, self.table.name))

    async def close(self) -> None:
        for worker in self._workers:
            await worker.stop(timeout=0)


def hinted(client: OutboxClient, hint: Hint) -> None:
    """Have the client's workers hear of a hint that nobody sent."""
    client.plans.hint(hint, asyncio.get_running_loop().time())


def _looked_at(node: Mapping[str, Any], table: str) -> int:
    rows = 0
    if node.get("Relation Name") == table and node["Node Type"].endswith("Scan"):
        each = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        rows = round(each * node.get("Actual Loops", 0))
    return rows + sum(_looked_at(child, table) for child in node.get("Plans", ()))
