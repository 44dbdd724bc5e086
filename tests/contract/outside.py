"""The outbox as somebody else sees and changes it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg

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
