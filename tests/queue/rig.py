"""A client with its tables, and what tests of the queue engine do with them.

Workers here do not poll unless the test says so: what a wake-up should have brought must not be
brought by a look from the beginning that happens to come along.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.events import Handled
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, DeadLetters, Done, OutboxClient, Outcome, Worker
from tests.queue.witness import Kind, Witness
from tests.waiting import eventually

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


async def done(claim: Claim) -> Done:
    return DONE


class Seen:
    """A handler that keeps what it got, and answers DONE or what it is told to."""

    def __init__(self, answer: Callable[[Claim], Outcome] = lambda claim: DONE) -> None:
        self.claims: list[Claim] = []
        self._answer = answer

    @property
    def bodies(self) -> list[str]:
        return [claim.payload.decode() for claim in self.claims]

    async def __call__(self, claim: Claim) -> Outcome:
        self.claims.append(claim)
        return self._answer(claim)


class Gate:
    """A handler that lets quick messages through and keeps others until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.finished: list[int] = []

    async def __call__(self, claim: Claim) -> Done:
        if claim.payload != b"quick":
            await self.open.wait()
        self.finished.append(claim.id)
        return DONE


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

    async def ended(
        self, kind: type[Kind], handle: Any, *bodies: str, queue: str = "orders", key: str | None = None, **options: Any
    ) -> Kind:
        """Start a worker, publish these bodies, and wait for as many such events; gives the last of them."""
        await self.work(handle, queue, **options)
        await self.put(*bodies, queue=queue, key=key)
        return await self.witness.wait(kind, count=len(bodies))

    async def filled(self, gate: Gate, *, key: str | None = None, **options: Any) -> Worker:
        """A worker that runs one slow message and has seven others waiting in memory, unless they have a key."""
        worker = await self.work(gate, fetch_batch_size=10, **options)
        await self.put(*["quick"] * 50)
        await self.witness.wait(Handled, count=50)
        await self.put(*["slow"] * 8, key=key)
        await eventually(lambda: worker.waiting == 7 or (key and worker.running), message="messages wait in memory")
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

    async def lease(self, where: str = "true", *, ago: str = "0 s") -> None:
        """Have a stranger hold these messages, since so long ago."""
        await self.sql(
            "update {t} set acquired_token = gen_random_uuid(), deliveries_count = greatest(deliveries_count, 1),"
            f" acquired_at = now() - interval '{ago}' where {where}"
        )

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


def asking(*keys: str, run: int = 1, held_by_dead: bool = True, **known: Any) -> dict[str, Any]:
    """Values of a claim of these keys, of which nothing is known but what is said."""
    count = len(keys)
    values = {"queues": ["orders"] * count, "keys": [*keys], "runs": [run] * count, "ttls": [60.0] * count}
    values |= {"held_by_dead": [held_by_dead] * count, "nexts": [None] * count, "floors": [None] * count}
    return values | {"server": None, "token": str(uuid4()), "unheard": []} | known


def hinted(client: OutboxClient, hint: Hint) -> None:
    """Have the client's workers hear of a hint that nobody sent."""
    client.plans.hint(hint, asyncio.get_running_loop().time())


def _looked_at(node: Mapping[str, Any], table: str) -> int:
    rows = 0
    if node.get("Relation Name") == table and node["Node Type"].endswith("Scan"):
        each = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        rows = round(each * node.get("Actual Loops", 0))
    return rows + sum(_looked_at(child, table) for child in node.get("Plans", ()))
