"""This package: its broker with several settings, and its engine alone."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from contest import BODY, Contestant, OnMessage, rss, serve
from downstream import CONFIRM_SECONDS, Downstream
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from faststream_outbox import Envelope, OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker

PLAIN = b'{"order_id": 12345, "amount": 99.5}'
JSON = {"content-type": "application/json"}
BUSINESS = text("insert into business (note) values (:note)")
BARE = text("insert into outbox (queue, payload, headers) values (:queue, :payload, cast(:headers as jsonb))")
MANY = """
    insert into outbox (queue, payload, headers)
    select $1, p, $2::text::jsonb from unnest($3::bytea[]) with ordinality as m (p, place) order by place
    returning id
"""
VALUES = {"queue": "orders", "payload": PLAIN, "headers": '{"content-type": "application/json"}'}

BROKER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "quiet": ({"logger": None}, {}),
    "tuned": ({"logger": None}, {"fetch_batch_size": 500}),
    "untyped": ({"logger": None, "apply_types": False}, {"fetch_batch_size": 500}),
    "batch": ({"logger": None}, {"fetch_batch_size": 500, "batch": True, "batch_size": 500}),
}
"""Options of the broker and of the subscriber, by the name of the settings."""
ENGINE: dict[str, dict[str, Any]] = {
    "engine": {"fetch_batch_size": 100},
    "engine 10": {"fetch_batch_size": 10},
    "engine batch": {"fetch_batch_size": 500, "batch": True, "batch_size": 500},
}


class Ours(Contestant):
    """faststream-outbox, this checkout."""

    packages = ("faststream-outbox", "faststream", "sqlalchemy", "asyncpg", "nats-py")

    async def open(self) -> None:
        self.engine = create_async_engine(self.dsn, pool_size=20)
        self.sessions = async_sessionmaker(self.engine)
        self.metadata = MetaData()
        self.table = make_outbox_table(self.metadata)
        self.dlq_table = make_dlq_table(self.metadata)
        self.brokers = {
            how: OutboxBroker(self.engine, outbox_table=self.table, notify=how)
            for how in ("after_commit", "off", "in_transaction")
        }

    async def rest(self) -> None:
        await self.engine.dispose()

    async def reset(self) -> None:
        async with self.engine.begin() as connection:
            await connection.run_sync(self.metadata.drop_all)
            await connection.run_sync(self.metadata.create_all)
            await connection.execute(text("drop table if exists business"))
            await connection.execute(text("create table business (id bigserial primary key, note text)"))

    async def backlog(self, messages: int, keys: int = 0) -> None:
        for start in range(0, messages, 1000):
            envelopes = [
                Envelope(queue="orders", body=PLAIN, headers=JSON, key=f"k{number % keys}" if keys else None)
                for number in range(start, min(start + 1000, messages))
            ]
            async with self.engine.begin() as connection:
                await publish(connection, self.table, *envelopes)

    async def others(self, rows: int) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into outbox (queue, payload, next_attempt_at) "
                    "select 'other' || (i % 50), '{}', now() + interval '1 day' from generate_series(1, :rows) i"
                ),
                {"rows": rows},
            )

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with self.engine.begin() as connection:
            await connection.execute(text("delete from outbox"))

    async def left(self) -> int:
        async with self.engine.connect() as connection:
            found = await connection.execute(text("select count(*) from outbox where queue = 'orders'"))
            return int(found.scalar_one())

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        count = {} if workers is None else {"max_workers": workers}
        if settings in ENGINE:
            worker = self._worker(on_message, **(ENGINE[settings] | count))
            await worker.start()
            yield
            await worker.stop()
            return
        of_broker, of_subscriber = BROKER[settings]
        broker = OutboxBroker(self.engine, outbox_table=self.table, **of_broker)
        self._subscribe(broker, on_message, sleep, **(of_subscriber | count))
        await broker.start()
        yield
        await broker.stop()

    @contextlib.asynccontextmanager
    async def relay(self, settings: str, behind: Downstream, *, workers: int | None = None) -> AsyncIterator[None]:
        of_broker, of_subscriber = BROKER["quiet" if settings == "relay" else settings]
        broker, nats = OutboxBroker(self.engine, outbox_table=self.table, **of_broker), behind.broker
        # FastStream's half a second is too short for a stream that a backlog comes to.
        publisher = nats.publisher(behind.subject, stream=behind.stream, timeout=CONFIRM_SECONDS)
        if settings == "relay":
            broker.relay("orders", to=publisher)
        else:
            self._forward(broker, publisher, **(of_subscriber | ({} if workers is None else {"max_workers": workers})))
        await nats.start()
        await broker.start()
        yield
        await broker.stop()

    def _forward(self, broker: OutboxBroker, publisher: Any, **options: Any) -> None:
        @publisher
        @broker.subscriber("orders", **options)
        async def hand_on(body: dict[str, Any]) -> dict[str, Any]:
            return body

    def _worker(self, on_message: Any, **options: Any) -> Worker:
        async def handle(claim: Claim) -> Outcome:
            on_message(None)
            return DONE

        async def handle_batch(claims: list[Claim]) -> list[Outcome]:
            on_message.many(len(claims))
            return [DONE] * len(claims)

        client = OutboxClient(self.engine, self.table, dlq_table=self.dlq_table)
        chosen: Any = handle_batch if options.get("batch") else handle
        return Worker(self.engine, self.table, "orders", chosen, client=client, **options)

    def _subscribe(self, broker: OutboxBroker, on_message: Any, sleep: float, **options: Any) -> None:
        subscriber = broker.subscriber("orders", **options)
        if options.get("batch"):

            @subscriber
            async def handle_batch(bodies: list[dict[str, Any]]) -> None:
                on_message.many(len(bodies))

        elif sleep:

            @subscriber
            async def handle_slowly(body: dict[str, Any]) -> None:
                await asyncio.sleep(sleep)
                on_message(body)

        else:

            @subscriber
            async def handle(body: dict[str, Any]) -> None:
                on_message(body)

    async def publish_single(self, how: str, messages: int) -> None:
        broker = self.brokers.get(how)
        for _ in range(messages):
            async with self.sessions() as session, session.begin():
                await session.execute(BUSINESS, {"note": "order"})
                if broker is not None:
                    await broker.publish(BODY, "orders", session=session)
                elif how == "engine":
                    await publish(session, self.table, Envelope(queue="orders", body=PLAIN, headers=JSON))
                elif how == "bare insert":
                    await session.execute(BARE, VALUES)

    async def publish_thousand(self, how: str, messages: int) -> None:
        for _ in range(messages // 1000):
            if how == "by hand":
                await self._thousand_by_hand()
                continue
            async with self.sessions() as session, session.begin():
                if how == "engine":
                    envelopes = [Envelope(queue="orders", body=PLAIN, headers=JSON) for _ in range(1000)]
                    await publish(session, self.table, *envelopes)
                else:
                    await self.brokers[how].publish_batch(*[BODY] * 1000, queue="orders", session=session)

    async def _thousand_by_hand(self) -> None:
        """The same bodies, encoded one by one, in the same table with one statement, and their ids read."""
        async with self.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            async with driver.transaction():
                payloads = [json.dumps(body).encode() for body in [BODY] * 1000]
                rows = await driver.fetch(MANY, "orders", VALUES["headers"], payloads)
                assert len([row[0] for row in rows]) == 1000

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        async with AsyncSession(self.engine) as session:
            await session.execute(BUSINESS, {"note": "order"})
            await self.brokers["after_commit"].publish({"n": number}, "orders", session=session)
            committing()
            await session.commit()

    async def publish_timers(self, due: list[float]) -> None:
        envelopes = [
            Envelope(
                queue="orders", body=b'{"n": %d}' % number, headers=JSON, activate_at=datetime.fromtimestamp(at, UTC)
            )
            for number, at in enumerate(due)
        ]
        async with self.sessions() as session, session.begin():
            await publish(session, self.table, *envelopes, wakeups=self.brokers["after_commit"].client.wakeups)

    @contextlib.asynccontextmanager
    async def idlers(self, subscribers: int) -> AsyncIterator[None]:
        """A broker with so many subscribers and nothing to do."""
        broker = OutboxBroker(self.engine, outbox_table=self.table)
        for number in range(subscribers):

            @broker.subscriber(f"idle{number}")
            async def handle(body: dict[str, Any]) -> None: ...

        await broker.start()
        yield
        await broker.stop()

    async def publish_in_one_call(self, bodies: int, size: int) -> dict[str, float]:
        """Publish many bodies in one call and watch memory from a thread."""
        made = [b"x" * (size - 10) + b"%010d" % number for number in range(bodies)]
        before, most, ended = rss(), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not ended.wait(0.002):
                most = max(most, rss())

        watcher = threading.Thread(target=watch)
        watcher.start()
        async with self.sessions() as session, session.begin():
            await self.brokers["off"].publish_batch(*made, queue="orders", session=session)
        ended.set()
        watcher.join()
        return {"times": (max(most, rss()) - before) / (bodies * size), "mb": bodies * size / 1e6}


if __name__ == "__main__":
    serve(Ours)
