"""A worker process of the fault tests: handles, keeps a record of it, and hangs where it is told to.

`python -m tests.faults.child '<Part as JSON>'`. Says on its standard output where it is, one word a line;
stops gracefully on SIGTERM.
"""

import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import asyncpg
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from faststream_outbox._internal.outcomes.outcome import DONE, SETTLED, Outcome, Retry
from faststream_outbox._internal.queue.asking import Asking
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.settler import Settler
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox.schema import make_dlq_table, make_outbox_table

PLAIN = "plain"
"""Queue of messages that are handled or retried."""
EFFECTS = "effects"
"""Queue of messages whose handler settles them in its own transaction, with an effect."""

READY = "ready"
MOST_RETRIES = 4


@dataclass(frozen=True, slots=True)
class Told:
    """What a child is told on its command line."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Part(Told):
    """What a child plays."""

    world: str
    record: str
    queues: list[str]
    seed: int
    driver: str = "asyncpg"
    clients: int = 1
    hang: str | None = None
    """`handler`, `settle`, or the name of the claiming statement whose answer is not used."""
    longest: float = 0.0
    """Seconds that a handler takes at most."""
    retries: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the driver, such as PgBouncer needs them."""


def say(word: str) -> None:
    print(word, flush=True)


async def hang_at(point: str) -> None:
    say(point)
    await asyncio.Event().wait()


def until_told() -> asyncio.Event:
    """What SIGTERM sets. The process ends at once when its standard input does, so that it outlives no test."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    return ended


class Player:
    """One client with one worker."""

    def __init__(self, part: Part, number: int, record: asyncpg.Pool) -> None:
        self._part = part
        self._record = record
        self._random = random.Random(f"{part.seed} {number} {os.getpid()}" if number else part.seed)
        address = part.world.replace("postgresql://", f"postgresql+{part.driver}://")
        self._engine = create_async_engine(address, connect_args=part.settings)
        self._sessions = async_sessionmaker(self._engine)
        metadata = MetaData()
        table = make_outbox_table(metadata)
        self._client = OutboxClient(self._engine, table, dlq_table=make_dlq_table(metadata))
        self.worker = Worker(
            self._engine, table, part.queues, self.handle, client=self._client, name=f"{os.getpid()}", **part.options
        )

    async def handle(self, claim: Claim) -> Outcome:
        run = await self._record.fetchval(
            "insert into handled (message_id, delivery, pid, key, version, acquired_at)"
            " values ($1, $2, $3, $4, $5, $6) returning seq",
            claim.message_id,
            claim.deliveries_count,
            os.getpid(),
            claim.key,
            int(claim.payload),
            claim.acquired_at,
        )
        if self._part.hang == "handler":
            await hang_at("handler")
        await asyncio.sleep(self._random.uniform(0.0, self._part.longest))
        if claim.attempts_count < MOST_RETRIES and self._random.random() < self._part.retries:
            await self._ended(run, "retry")
            return Retry(delay=self._random.uniform(0.0, 0.05))
        if claim.queue == EFFECTS:
            return await self._handle_with_effect(claim, run)
        await self._ended(run, "done")
        return DONE

    async def _handle_with_effect(self, claim: Claim, run: int) -> Outcome:
        async with self._sessions.begin() as session:
            await session.execute(
                text(
                    "insert into effects (message_id, times) values (:id, 1)"
                    " on conflict (message_id) do update set times = effects.times + 1"
                ),
                {"id": claim.message_id},
            )
            await self._client.settle_within(session, claim)
            # Before the commit: after it another worker may already have begun with the next of the key.
            await self._ended(run, "settled")
        return SETTLED

    async def _ended(self, run: int, outcome: str) -> None:
        await self._record.execute(
            "update handled set ended = clock_timestamp(), outcome = $2 where seq = $1", run, outcome
        )

    async def close(self) -> None:
        await self.worker.stop()
        await self._engine.dispose()


def set_trap(point: str) -> None:
    """Hang in every settle, or with the answer of a claim in flight; the handler hangs by itself."""
    if point == "settle":

        async def send(settler: Settler, items: Any) -> set[int]:
            await hang_at(point)
            return set()

        Settler._send = send  # type: ignore[method-assign]
    elif point != "handler":
        fetch = Asking.fetch

        async def fetch_and_hang(asking: Asking, name: str, values: dict[str, Any]) -> Any:
            answer = await fetch(asking, name, values)
            if name == point and any(row[0] is not None for row in answer[0]):
                await hang_at(point)
            return answer

        Asking.fetch = fetch_and_hang  # type: ignore[method-assign]


async def main(part: Part) -> None:
    if part.hang is not None:
        set_trap(part.hang)
    ended = until_told()
    async with asyncpg.create_pool(part.record, min_size=1, max_size=8) as record:
        players = [Player(part, number, record) for number in range(part.clients)]
        await asyncio.gather(*(player.worker.start() for player in players))
        say(READY)
        await ended.wait()
        await asyncio.gather(*(player.close() for player in players))


if __name__ == "__main__":
    asyncio.run(main(Part(**json.loads(sys.argv[1]))))
