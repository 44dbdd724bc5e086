"""A broker, and the outbox as somebody else sees and changes it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from tests.waiting import eventually

Row = dict[str, Any]


class Outside:
    """Another client of the database, in no transaction."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self.connection = connection

    def sql(self, statement: str, *values: Any) -> Sequence[Row]:
        """Run a statement and give its rows."""
        cursor = self.connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> Sequence[Row]:
        """The outbox, by id."""
        return self.sql("select * from outbox order by id")

    def row(self) -> Row:
        """The only row of the outbox."""
        (row,) = self.rows()
        return row

    def is_empty(self) -> bool:
        """Whether every message has ended."""
        return not self.rows()

    def put(self, body: bytes = b"1", queue: str = "orders", **columns: Any) -> int:
        """Insert a row as a program in another language would."""
        given = {"queue": queue, "payload": body, "headers": '{"content-type": "application/json"}', **columns}
        holes = ", ".join(["%s"] * len(given))
        return int(
            self.sql(f"insert into outbox ({', '.join(given)}) values ({holes}) returning id", *given.values())[0]["id"]
        )

    def lease(self, seconds_ago: float = 0.0) -> UUID:
        """Lease every row, as another worker would have that long ago; gives the token."""
        token = uuid4()
        self.sql(
            "update outbox set acquired_token = %s, acquired_at = now() - make_interval(secs => %s),"
            " deliveries_count = deliveries_count + 1",
            token,
            seconds_ago,
        )
        return token


class App(Outside):
    """A broker with all defaults that is not started, a session with nothing begun, and the outbox from outside."""

    def __init__(
        self, engine: AsyncEngine, table: Table, session: AsyncSession, connection: psycopg.Connection[Row]
    ) -> None:
        super().__init__(connection)
        self._engine, self._table = engine, table
        self.session = session
        self.brokers: list[OutboxBroker] = []
        self.broker = self.another()

    def another(self, engine: AsyncEngine | None = None, **options: Any) -> OutboxBroker:
        """A broker as another process would have it."""
        self.brokers.append(OutboxBroker(engine or self._engine, outbox_table=self._table, **options))
        return self.brokers[-1]

    def collects(
        self, broker: OutboxBroker | None = None, *, error: Exception | None = None, **options: Any
    ) -> list[Any]:
        """A subscriber that fails with the error, if there is one, and the list of what it is given."""
        bodies: list[Any] = []

        @(broker or self.broker).subscriber("orders", **options)
        async def handle(body: Any) -> None:
            bodies.append(body)
            if error is not None:
                raise error

        return bodies

    async def publish(self, *bodies: Any, queue: str = "orders") -> None:
        """Publish messages in a transaction of their own."""
        async with self.session.begin():
            await self.broker.publish_batch(*bodies, queue=queue, session=self.session)

    async def finishes(self, *bodies: Any, queue: str = "orders") -> None:
        """Start the broker, publish, and wait until every message has ended."""
        await self.broker.start()
        if bodies:
            await self.publish(*bodies, queue=queue)
        await eventually(self.is_empty)
