"""The producer: transactions that write a business row and its message, of which some roll back and some are long.

It holds back while too much waits, so that a run ends soon after its faults however slow the computer is.

Versions of a key are counted under a row lock, so that they are numbered in the order of their commits. What is said
in the history: the ids of a transaction before it begins, and what its COMMIT answered.
"""

import asyncio
import contextlib
import json
import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker
from tests.faults.machine.history import BEGUN, COMMITTED, ROLLED_BACK, UNCERTAIN, Pen
from tests.faults.machine.part import Part
from tests.faults.machine.stage import BULK, EXACT, FACTS, MARK, ORDERS, OUTWARD, REVIVED, SOUGHT_GROUP, TIMERS, Tables

PLACES = (ORDERS, ORDERS, BULK, BULK, TIMERS, EXACT, EXACT, REVIVED, OUTWARD, FACTS, FACTS, FACTS)
AT_ONCE = 8
"""Transactions that a producer has open at a time: publishers overlap."""
MOST_WAITING = 500
"""Messages in the queues together, or in the topic before the slowest group, above which nothing is published."""
WAITING_SECONDS = 1.0
_WAITING = text(
    "select greatest((select count(*) from outbox), (select count(*) from outbox_log where position > ("
    f"select min(position) from outbox_log_offsets where consumer_group <> '{SOUGHT_GROUP}')))"
)
KEYS = 24
"""Names of keys in each place."""


@dataclass(frozen=True, slots=True)
class Habit:
    """How messages and transactions are."""

    keyed: float = 0.6
    rollbacks: float = 0.15
    long: float = 0.004
    """The share of transactions that stay open for seconds."""
    longest: float = 2.5
    most: int = 8
    """Messages in a transaction."""
    poison: float = 0.01
    revived: float = 0.2
    """The share of poison where dead letters are replayed."""
    fails: float = 0.03
    slow: float = 0.04
    """The share of messages of queues whose handler takes longer than its lease; in topics, where others of a slot wait
    meanwhile, a tenth of that."""
    slow_leases: float = 1.4
    """How many leases such a handler takes."""
    seconds: float = 0.04
    """What other handlers take at most."""


class Producer:
    """Publishes until it is closed."""

    def __init__(self, part: Part, pen: Pen) -> None:
        self._part = part
        self._pen = pen
        self._chance = random.Random(part.seed)
        self._habit = replace(Habit(), **part.habits)  # type: ignore[arg-type]
        self._engine = part.engine()
        tables = Tables()
        self._broker = OutboxBroker(
            self._engine, outbox_table=tables.outbox, dlq_table=tables.dead, log_tables=tables.log, logger=None
        )
        self._publishing: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._is_crowded = False

    async def start(self) -> None:
        await self._broker.connect()
        self._publishing = [asyncio.create_task(self._publish()) for _ in range(AT_ONCE)]
        self._publishing.append(asyncio.create_task(self._look()))

    async def stop(self) -> None:
        self._ended.set()
        if self._publishing:
            await asyncio.wait(self._publishing)
        await self._broker.stop()
        await self._engine.dispose()

    async def _publish(self) -> None:
        while not self._ended.is_set():
            if not self._is_crowded:
                await self._transaction()
            await self._pause(self._chance.uniform(0.0, 2.0 * AT_ONCE / self._part.pace))

    async def _look(self) -> None:
        """See now and then whether too much waits; what cannot be seen is as it was."""
        while not self._ended.is_set():
            with contextlib.suppress(OSError, SQLAlchemyError, TimeoutError):
                async with self._engine.connect() as connection:
                    self._is_crowded = (await connection.execute(_WAITING)).scalar_one() > MOST_WAITING
            await self._pause(WAITING_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def _transaction(self) -> None:
        chance, habit = self._chance, self._habit
        place = chance.choice(self._part.places or PLACES)
        ids = [UUID(int=chance.getrandbits(128), version=4) for _ in range(chance.randint(1, int(habit.most)))]
        keyed = place not in (BULK, TIMERS) and (place == FACTS or chance.random() < habit.keyed)
        key = f"{place}-{chance.randrange(KEYS)}" if keyed else None
        rolls_back = chance.random() < habit.rollbacks
        open_for = chance.uniform(1.0, habit.longest) if chance.random() < habit.long else chance.uniform(0.0, 0.02)
        names = [str(message_id) for message_id in ids]
        self._pen.write(BEGUN, ids=names)
        is_committing = False
        try:
            async with AsyncSession(self._engine) as session:
                for message_id in ids:
                    await self._message(session, place, key, message_id)
                await asyncio.sleep(open_for)
                if rolls_back:
                    await session.rollback()
                else:
                    is_committing = True
                    await session.commit()
            self._pen.write(ROLLED_BACK if rolls_back else COMMITTED, ids=names)
        except (OSError, SQLAlchemyError, TimeoutError) as error:
            kind = UNCERTAIN if is_committing else ROLLED_BACK
            self._pen.write(kind, ids=names, error=type(error).__name__)
            await asyncio.sleep(0.1)

    async def _message(self, session: AsyncSession, place: str, key: str | None, message_id: UUID) -> None:
        chance, habit = self._chance, self._habit
        share = habit.revived if place == REVIVED else habit.poison
        poison = place not in (TIMERS, OUTWARD) and chance.random() < share
        slow = habit.slow / 10 if place == FACTS else habit.slow
        is_slow = place not in (OUTWARD, BULK) and chance.random() < slow
        seconds = habit.slow_leases * self._part.lease_seconds if is_slow else chance.uniform(0.0, habit.seconds)
        fails = chance.randint(1, 2) if chance.random() < habit.fails else 0
        due = None
        if place == TIMERS:
            # By the server's clock: that of this process may be hours wrong.
            wanted = timedelta(seconds=chance.uniform(0.2, 5.0))
            now: datetime = (await session.execute(text("select clock_timestamp()"))).scalar_one()
            due = now + wanted
        version = None
        if key is not None:
            counted = await session.execute(
                text(
                    "insert into versions (key, version) values (:key, 1)"
                    " on conflict (key) do update set version = versions.version + 1 returning version"
                ),
                {"key": key},
            )
            version = counted.scalar_one()
        body = {
            "id": str(message_id),
            "place": place,
            "key": key,
            "version": version,
            "poison": poison,
            "fails": fails,
            "seconds": round(seconds, 4),
        }
        await record(session, body, due=due)
        await self._broker.publish(
            body,
            **({"topic": FACTS} if place == FACTS else {"queue": place}),
            session=session,
            key=key,
            headers={MARK: str(message_id)},
            message_id=message_id,
            **({} if due is None else {"activate_at": due}),
        )


async def record(
    session: AsyncSession, body: dict[str, Any], *, due: datetime | None = None, parent: str | None = None
) -> None:
    """Write the business row of a message, in the transaction of the message."""
    await session.execute(
        text(
            "insert into business (message_id, place, key, version, poison, due, body, parent) values"
            " (cast(:id as uuid), :place, :key, :version, :poison, :due, :body, cast(cast(:parent as text) as uuid))"
        ),
        {
            "id": body["id"],
            "place": body["place"],
            "key": body["key"],
            "version": body["version"],
            "poison": body["poison"],
            "due": due,
            "body": json.dumps(body, sort_keys=True),
            "parent": parent,
        },
    )
