"""The limit: asyncpg by hand on the table of `faststream-outbox` 0.19, one claim and one delete after the other.

It takes expired leases too, as a queue must. No retries, no renewal, no order, no framework, no wake-ups; bodies are
not even decoded.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
from contest import Contestant, OnMessage, serve

PLAIN = b'{"order_id": 12345, "amount": 99.5}'
HEADERS = '{"content-type": "application/json"}'
BUSINESS = "insert into business (note) values ($1)"
INSERT = "insert into outbox (queue, payload, headers) values ($1, $2, $3)"
INSERT_MANY = """
    insert into outbox (queue, payload, headers)
    select q, p, h::jsonb from unnest($1::text[], $2::bytea[], $3::text[]) as m (q, p, h)
"""
TABLE = """
    drop table if exists outbox, business;
    create table business (id bigserial primary key, note text);
    create table outbox (
        id bigserial primary key, queue varchar(255) not null, payload bytea not null, headers jsonb,
        attempts_count bigint not null default 0, deliveries_count bigint not null default 0,
        created_at timestamptz not null default now(), next_attempt_at timestamptz not null default now(),
        first_attempt_at timestamptz, last_attempt_at timestamptz, acquired_at timestamptz, acquired_token uuid,
        timer_id varchar(255),
        constraint outbox_lease_ck check ((acquired_token is null) = (acquired_at is null))
    );
    create index outbox_pending_idx on outbox (queue, next_attempt_at, id) where acquired_token is null;
    create index outbox_leased_idx on outbox (queue, next_attempt_at, id) where acquired_token is not null;
    create unique index outbox_timer_id_uq on outbox (queue, timer_id) where timer_id is not null;
"""
CLAIM = """
    with fresh as (
        select id from outbox
        where queue = 'orders' and next_attempt_at <= now() and acquired_token is null
        order by next_attempt_at, id limit $1 for update skip locked
    ), expired as (
        select id from outbox
        where queue = 'orders' and next_attempt_at <= now() and acquired_token is not null
          and acquired_at < now() - interval '60 seconds'
        order by next_attempt_at, id limit $1 for update skip locked
    ), picked as (
        select id from fresh union all select id from expired limit $1
    )
    update outbox o set acquired_token = $2, acquired_at = now(), deliveries_count = deliveries_count + 1
    from picked p where o.id = p.id
    returning o.*
"""
DELETE = "delete from outbox where id = any ($1::bigint[]) and acquired_token = $2"
SETTINGS = {"by 1": 1, "by 10": 10, "by 100": 100, "by 500": 500}


class Raw(Contestant):
    """Bare asyncpg."""

    packages = ("asyncpg",)

    async def open(self) -> None:
        self.dsn = self.dsn.replace("+asyncpg", "")
        await self._connect()

    async def _connect(self) -> None:
        pool = await asyncpg.create_pool(self.dsn, min_size=1, max_size=20)
        assert pool is not None
        self.pool = pool

    async def rest(self) -> None:
        await self.pool.close()
        await self._connect()

    async def reset(self) -> None:
        async with self.pool.acquire() as connection:
            await connection.execute(TABLE)
        await self.pool.expire_connections()

    async def backlog(self, messages: int, keys: int = 0) -> None:
        async with self.pool.acquire() as connection:
            for start in range(0, messages, 1000):
                size = min(1000, messages - start)
                await connection.execute(INSERT_MANY, ["orders"] * size, [PLAIN] * size, [HEADERS] * size)

    async def left(self) -> int:
        async with self.pool.acquire() as connection:
            return int(await connection.fetchval("select count(*) from outbox where queue = 'orders'"))

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        running = asyncio.create_task(self._consume(SETTINGS[settings], on_message))
        yield
        await running

    async def _consume(self, size: int, on_message: OnMessage) -> None:
        async with self.pool.acquire() as connection:
            while True:
                token = uuid4()
                rows = await connection.fetch(CLAIM, size, token)
                if not rows:
                    return
                for row in rows:
                    on_message(row["payload"])
                await connection.execute(DELETE, [row["id"] for row in rows], token)

    async def publish_single(self, how: str, messages: int) -> None:
        async with self.pool.acquire() as connection:
            for _ in range(messages):
                async with connection.transaction():
                    await connection.execute(BUSINESS, "order")
                    await connection.execute(INSERT, "orders", PLAIN, HEADERS)

    async def publish_thousand(self, how: str, messages: int) -> None:
        queues, bodies, headers = ["orders"] * 1000, [PLAIN] * 1000, [HEADERS] * 1000
        async with self.pool.acquire() as connection:
            for _ in range(messages // 1000):
                async with connection.transaction():
                    await connection.execute(INSERT_MANY, queues, bodies, headers)


if __name__ == "__main__":
    serve(Raw)
