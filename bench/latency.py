"""`python -m bench.latency`: from a commit to the beginning of its handler, with publishers that overlap.

Sixteen publishers, each in transactions that stay open for 0 to 200 ms after the INSERT, so that rows appear
below the place that a claimer has reached; a worker with default options. With hints (AsyncSession) and
without (raw asyncpg, where the worker finds messages by watching the id sequence); in a quiet database and
after a churn whose dead rows an old snapshot keeps. The time counts from just before COMMIT is sent, so that
it includes the server's own; how long COMMIT itself took is printed beside it. Options: `--seconds 10`, `--seed 1`.
"""

import argparse
import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal
from uuid import UUID

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker

from bench.stage import Stage, stage
from faststream_outbox import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker

PUBLISHERS = 16
LONGEST_TRANSACTION = 0.2
CHURN = 20_000
PATIENCE = 15.0

Way = Literal["hints", "no hints"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds from commit to handler and seconds that commits took, each sorted."""

    seconds: list[float]
    commits: list[float]

    @property
    def published(self) -> int:
        """Messages committed."""
        return len(self.commits)

    def at(self, percent: float) -> float:
        """The percentile of the latencies."""
        return _percentile(self.seconds, percent)

    def commit_at(self, percent: float) -> float:
        """The percentile of what COMMIT itself took."""
        return _percentile(self.commits, percent)

    def __str__(self) -> str:
        latency, commit = (
            ", ".join(f"p{percent} {_percentile(of, percent) * 1000:.1f}" for percent in (50, 90, 99, 100))
            for of in (self.seconds, self.commits)
        )
        return f"{len(self.seconds)} of {self.published} handled; ms from commit: {latency}; COMMIT itself: {commit}"


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Course:
    """What publishers and the handler of one measurement share."""

    def __init__(self, made: Stage) -> None:
        self.made = made
        self.client = OutboxClient(made.engine, made.table, dlq_table=made.dlq_table)
        self.committed: dict[UUID, float] = {}
        self.commits: list[float] = []
        self.began: dict[UUID, float] = {}
        self._began = asyncio.Event()

    async def handle(self, claim: Claim) -> Outcome:
        """Take the time."""
        self.began.setdefault(claim.message_id, perf_counter())
        self._began.set()
        return DONE

    async def finish(self) -> None:
        """Wait until every message was handled, or until patience ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while len(self.began) < len(self.committed):
                    self._began.clear()
                    await self._began.wait()

    async def publish_with_hints(self, chance: random.Random, until: float) -> None:
        """Transactions of an AsyncSession, one after the other."""
        sessions = async_sessionmaker(self.made.engine)
        while perf_counter() < until:
            envelope = _envelope(chance)
            async with sessions() as session:
                await publish(session, self.made.table, envelope, wakeups=self.client.wakeups)
                await asyncio.sleep(chance.uniform(0.0, LONGEST_TRANSACTION))
                await self._commit(envelope, session.commit())

    async def publish_without(self, chance: random.Random, until: float) -> None:
        """Transactions of a raw asyncpg connection, of whose commit nobody tells."""
        url = self.made.engine.url.set(drivername="postgresql")
        connection = await asyncpg.connect(url.render_as_string(hide_password=False))
        try:
            while perf_counter() < until:
                envelope = _envelope(chance)
                transaction = connection.transaction()
                await transaction.start()
                await publish(connection, self.made.table, envelope)
                await asyncio.sleep(chance.uniform(0.0, LONGEST_TRANSACTION))
                await self._commit(envelope, transaction.commit())
        finally:
            await connection.close()

    async def _commit(self, envelope: Envelope, commit: Awaitable[None]) -> None:
        assert envelope.message_id is not None
        sent = self.committed[envelope.message_id] = perf_counter()
        await commit
        self.commits.append(perf_counter() - sent)


def _envelope(chance: random.Random) -> Envelope:
    return Envelope(queue="orders", body=b"{}", message_id=UUID(int=chance.getrandbits(128), version=4))


@contextlib.asynccontextmanager
async def churned(made: Stage) -> AsyncIterator[None]:
    """Dead rows of the last minute, which a snapshot keeps for as long as the block."""
    async with made.held_snapshot():
        async with made.engine.begin() as connection:
            await connection.execute(
                text(
                    f"insert into {made.table.name} (queue, payload, next_attempt_at) "
                    "select 'orders', '{}', now() - random() * interval '1 minute' from generate_series(1, :rows)"
                ),
                {"rows": CHURN},
            )
        async with made.engine.begin() as connection:
            await connection.execute(text(f"delete from {made.table.name}"))
        yield


async def measured(made: Stage, way: Way, *, snapshot: bool, seconds: float, seed: int, **options: Any) -> Latencies:
    """Publish for so long, wait until all is handled or patience ends, and give the latencies."""
    course = Course(made)
    worker = Worker(made.engine, made.table, "orders", course.handle, client=course.client, **options)
    async with churned(made) if snapshot else contextlib.nullcontext():
        await worker.start()
        until = perf_counter() + seconds
        publishes = course.publish_with_hints if way == "hints" else course.publish_without
        chances = [random.Random(f"{seed} {number}") for number in range(PUBLISHERS)]
        await asyncio.gather(*(publishes(chance, until) for chance in chances))
        await course.finish()
        await worker.stop()
    waited = sorted(began - course.committed[message] for message, began in course.began.items())
    return Latencies(waited, sorted(course.commits))


async def main() -> None:
    """Measure all four and print them."""
    options = argparse.ArgumentParser(prog="bench.latency")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    print(f"{PUBLISHERS} publishers, transactions of 0 to {LONGEST_TRANSACTION * 1000:.0f} ms, seed {chosen.seed}")
    async with stage() as made:
        ways: tuple[Way, ...] = ("hints", "no hints")
        for way in ways:
            for snapshot in (False, True):
                await made.reset()
                found = await measured(made, way, snapshot=snapshot, seconds=chosen.seconds, seed=chosen.seed)
                held = f"snapshot held over {CHURN:,} dead rows" if snapshot else "no snapshot"
                print(f"{way}, {held}: {found}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
