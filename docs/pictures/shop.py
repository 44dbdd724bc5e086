"""A shop in trouble, for the screenshots of the dashboard: tables with something of everything in them.

Messages, dead letters and leases are written as the engines write them; the processes are connections under the names
that connections of ours have. Used by `screenshots` alone.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import MetaData, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from examples.demo.until import until
from faststream_outbox import NoRetry, OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox._internal.connections.identity import Role, name_of
from faststream_outbox._internal.dashboard.monitor import History, Sample
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.overview import Rates

METADATA = MetaData()
OUTBOX = make_outbox_table(METADATA)
OUTBOX_DLQ = make_dlq_table(METADATA)
OUTBOX_LOG = make_log_tables(METADATA, "outbox_log")
CHANCE = random.Random(7)

HOSTS: Sequence[tuple[str, str, int, Sequence[Role]]] = (
    ("3f2a9c1b", "worker-7f9c6d-x2k8p", 17, ("claim", "scan", "settle", "listen")),
    ("8be01d44", "worker-7f9c6d-q9w4z", 17, ("claim", "scan", "settle", "listen")),
    ("d90f1236", "api-6c4f58-8hj2n", 31, ("notify",)),
)
# How many are ready, and for how many seconds the first has been; scheduled; in flight.
QUEUES = {
    "emails": (1840, 312, 12, 8),
    "orders": (14, 1, 3, 6),
    "payments": (3, 2, 4, 2),
    "search-index": (620, 41, 0, 9),
    "webhooks": (88, 6, 31, 4),
    "reports.nightly": (260, 5400, 0, 0),
}
DEAD = (
    ("payments", "CardDeclined", "insufficient funds", 118, 2880),
    ("emails", "ConnectTimeout", "mail.internal:587 did not answer within 10 s", 23, 300),
    ("parcels", "KeyError", "'postal_code'", 2, 60),
)
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/payments.py", line 88, in charge
    answer = await gateway.charge(order.card, order.cents)
  File "/srv/shop/gateway.py", line 41, in charge
    raise CardDeclined(answer["reason"])
shop.gateway.CardDeclined: insufficient funds"""


class Far:
    """A broker far away."""

    name = "NATS shop.orders"

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, messages: Sequence[object]) -> list[object]:
        """Sends nothing: the shop's relay is not started here."""
        return []


def broker_of(engine: AsyncEngine) -> OutboxBroker:
    """The shop's broker, which is not started."""
    broker = OutboxBroker(engine, outbox_table=OUTBOX, dlq_table=OUTBOX_DLQ, log_tables=OUTBOX_LOG, logger=None)
    broker.relay("orders", to=Far(), name="orders to NATS")
    return broker


@asynccontextmanager
async def open_shop(engine: AsyncEngine) -> AsyncGenerator[None]:
    """The tables, filled, and processes that are connected while the block runs."""
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await _fill_queues(engine)
    await _fill_topics(engine)
    async with AsyncExitStack() as stack, _reading(engine):
        for worker_id, host, pid, roles in HOSTS:
            for role in roles:
                connection = await stack.enter_async_context(engine.connect())
                name = name_of(worker_id, role, host, pid)
                await connection.execute(text("select set_config('application_name', :name, false)"), {"name": name})
                await connection.commit()
        yield


@asynccontextmanager
async def _reading(engine: AsyncEngine) -> AsyncGenerator[None]:
    """Two members of a group that share its slots, and then each in the middle of a message."""
    readers = [Outbox(engine, tables=OUTBOX_LOG, on_parked="hold_key") for _ in range(2)]

    async def ponder(message: OutboxMessage) -> None:
        await asyncio.Event().wait()

    running = [asyncio.create_task(reader.run(ponder, "billing", "orders")) for reader in readers]
    try:
        async with asyncio.timeout(60):
            await until(lambda: _is_shared(readers[0], len(readers)))
        await _publish(readers[0], range(400, 440))
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        for reader in readers:
            await reader.cleanup()


async def _is_shared(reader: Outbox, members: int) -> bool:
    return len({lag.owner for lag in await reader.lag("billing") if lag.owner is not None}) == members


async def _publish(outbox: Outbox, numbers: range) -> None:
    async with AsyncSession(outbox.engine) as session, session.begin():
        messages = (OutboxMessage(f"orders/customer-{n % 60}", {"order_id": n, "cents": 4900}) for n in numbers)
        await outbox.publish(session, *messages)


async def _fill_queues(engine: AsyncEngine) -> None:
    now = datetime.now(UTC)
    rows = [row for queue, counts in QUEUES.items() for row in _messages(queue, counts, now)]
    rows += [
        _message("reminders", now, due=now + timedelta(minutes=4 + 17 * number), timer_id=f"cart-{4100 + number}")
        for number in range(14)
    ]
    letters = [
        _letter(row, now)
        for queue, error, said, count, minutes in DEAD
        for row in [(queue, error, said, CHANCE.random() * minutes) for _ in range(count)]
    ]
    letters.sort(key=lambda row: row["failed_at"])
    async with engine.begin() as connection:
        for start in range(0, len(rows), 500):
            await connection.execute(insert(OUTBOX), rows[start : start + 500])
        for number, letter in enumerate(letters):
            await connection.execute(insert(OUTBOX_DLQ).values(letter | {"original_id": 880_000 + number}))
    await broker_of(engine).pause("reports.nightly")


def _messages(queue: str, counts: tuple[int, int, int, int], now: datetime) -> list[dict[str, Any]]:
    ready, oldest, scheduled, leased = counts
    due = [now - timedelta(seconds=oldest * (1 - number / ready)) for number in range(ready)]
    rows = [_message(queue, moment) for moment in due]
    rows += [_message(queue, now, due=now + timedelta(seconds=30 + 20 * number)) for number in range(scheduled)]
    for number in range(leased):
        worker_id = HOSTS[number % 2][0]
        token = UUID(f"{worker_id}-{CHANCE.getrandbits(16):04x}-4000-8000-{CHANCE.getrandbits(48):012x}")
        claimed = now - timedelta(seconds=number % 5)
        rows.append(_message(queue, claimed) | {"acquired_token": token, "acquired_at": claimed, "deliveries_count": 1})
    return rows


def _message(
    queue: str, created: datetime, *, due: datetime | None = None, timer_id: str | None = None
) -> dict[str, Any]:
    return {
        "queue": queue,
        "payload": _body(),
        "headers": _headers(),
        "created_at": created,
        "next_attempt_at": due or created,
        "timer_id": timer_id,
        "key": f"customer-{CHANCE.randrange(4000)}",
        "message_id": UUID(int=CHANCE.getrandbits(128), version=4),
        "acquired_token": None,
        "acquired_at": None,
        "deliveries_count": 0,
    }


def _body() -> bytes:
    lines = [{"sku": CHANCE.choice(("CHAIR-OAK", "LAMP-2", "DESK-160")), "quantity": CHANCE.randrange(1, 4)}]
    order = {"order_id": CHANCE.randrange(40_000, 42_000), "customer": "Ada Lovelace", "card_number": "4242"}
    return json.dumps(order | {"lines": lines, "cents": 4900}).encode()


def _headers() -> dict[str, str]:
    trace = f"00-{CHANCE.getrandbits(128):032x}-{CHANCE.getrandbits(64):016x}-01"
    return {"content-type": "application/json", "correlation_id": str(UUID(int=7)), "traceparent": trace}


def _letter(failure: tuple[str, str, str, float], now: datetime) -> dict[str, Any]:
    queue, error, said, minutes = failure
    died = now - timedelta(minutes=3 + minutes)
    message = _message(queue, died - timedelta(minutes=9))
    if error == "KeyError":
        message["payload"] = json.dumps({"parcel": 7718, "to": {"street": "12 Quay Street", "city": "Galway"}}).encode()
    kept = ("queue", "payload", "headers", "created_at", "key", "message_id")
    return {name: message[name] for name in kept} | {
        "attempts_count": 10,
        "deliveries_count": 10,
        "first_attempt_at": died - timedelta(minutes=9),
        "last_attempt_at": died,
        "failed_at": died,
        "failure_reason": "retry_terminal",
        "error_type": error,
        "error_message": said,
        "traceback": TRACEBACK if error == "CardDeclined" else None,
    }


async def _fill_topics(engine: AsyncEngine) -> None:
    outbox = Outbox(engine, tables=OUTBOX_LOG, listen=False, retry_strategy=NoRetry(), on_parked="hold_key")

    async def bill(message: OutboxMessage) -> None:
        if message.payload["order_id"] % 97 == 0:
            raise KeyError("vat_id")

    async def index(message: OutboxMessage) -> None: ...

    async def read(group: str, handler: Any) -> None:
        while await outbox.dispatch(handler, group, "orders"):
            pass

    await _publish(outbox, range(1, 400))
    await read("billing", bill)
    await read("search", index)
    await read("warehouse", index)
    await outbox.groups.pause("warehouse", "orders")
    await outbox.cleanup()


def remember(history: History, sample: Sample, queues: Mapping[str, tuple[int, int, int, int]] = QUEUES) -> None:
    """An hour that led to how it stands now: the mails began to pile up five minutes ago."""
    for step in range(720, 0, -1):
        wave = 1 + 0.25 * CHANCE.random()
        piled = max(0.0, 1 - step * 5 / queues["emails"][1])
        then = [
            replace(
                queue,
                ready=int(queue.ready * piled) + CHANCE.randrange(9),
                oldest_ready_seconds=312 * piled + CHANCE.random(),
            )
            if queue.queue == "emails"
            else replace(queue, ready=int(queue.ready * (0.7 + 0.4 * CHANCE.random())), oldest_ready_seconds=1.0)
            for queue in sample.queues
        ]
        groups = [
            group if group.paused_since else replace(group, messages=int(30 * wave * CHANCE.random()), seconds=1.0)
            for group in sample.groups
        ]
        handled = 96 * wave - (40 if piled else 0)
        rates = Rates(96.0 * wave, handled, 0.02, 5.0)
        history.add(Sample(sample.at - timedelta(seconds=5 * step), then, groups, rates))
    history.add(replace(sample, rates=Rates(104.0, 66.0, 0.03, 5.0)))
