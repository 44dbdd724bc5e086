"""What becomes of a message: every way for a handler to end, under every policy."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, StopConsume
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from faststream_outbox.errors import InvalidOption
from tests.waiting import eventually

ACK, REJECT, NACK, MANUAL = AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
STRATEGY_DELAY = 1000.0
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


class Panic(BaseException):
    """What a Rust extension raises."""


DONE, RETRY, DEAD, UNDECIDED, SKIPPED = "done", "retry", "dead", "undecided", "skipped"
LEASE_SECONDS = 300.0

TABLE: dict[str, dict[AckPolicy, str]] = {
    "returns": {ACK: DONE, REJECT: DONE, NACK: DONE, MANUAL: UNDECIDED},
    "exception": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "panic": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "AckMessage": {ACK: DONE, REJECT: DONE, NACK: DONE, MANUAL: UNDECIDED},
    "NackMessage": {ACK: RETRY, REJECT: RETRY, NACK: RETRY, MANUAL: UNDECIDED},
    "RejectMessage": {ACK: DEAD, REJECT: DEAD, NACK: DEAD, MANUAL: UNDECIDED},
    "SkipMessage": {ACK: SKIPPED, REJECT: SKIPPED, NACK: SKIPPED, MANUAL: UNDECIDED},
    "StopConsume": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "parser raises": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "on_receive raises": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "message.ack()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), DONE),
    "message.nack()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRY),
    "message.reject()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), DEAD),
    "acks, then raises": dict.fromkeys((ACK, REJECT, NACK, MANUAL), DONE),
    "cancelled": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRY),
}
RAISED: dict[str, type[BaseException]] = {
    "exception": ValueError,
    "panic": Panic,
    "AckMessage": AckMessage,
    "NackMessage": NackMessage,
    "RejectMessage": RejectMessage,
    "SkipMessage": SkipMessage,
    "StopConsume": StopConsume,
    "cancelled": asyncio.CancelledError,
}
CASES = [(ending, policy, expected) for ending, row in TABLE.items() for policy, expected in row.items()]


class Stage:
    """One broker, one queue, one message, and what became of it."""

    def __init__(self, engine: AsyncEngine, table: Table, dlq_table: Table) -> None:
        self.engine = engine
        self.tables = table.name, dlq_table.name
        self.broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, logger=None)

    async def _read(self, name: str) -> list[dict[str, Any]]:
        async with self.engine.connect() as connection:
            moment = "next_attempt_at" if name == self.tables[0] else "failed_at"
            result = await connection.execute(text(f"select *, {moment} - now() as ahead from {name}"))
            return [dict(row) for row in result.mappings()]

    async def play(self, *bodies: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Publish, and give both tables once nothing waits or is leased for the first time."""
        await self.broker.start()
        try:
            async with AsyncSession(self.engine) as session, session.begin():
                await self.broker.publish_batch(*(bodies or (1,)), queue="orders", session=session)

            async def every_message_was_settled() -> bool:
                rows = await self._read(self.tables[0])
                return all(row["last_attempt_at"] is not None and row["acquired_token"] is None for row in rows)

            await eventually(every_message_was_settled)
            return await self._read(self.tables[0]), await self._read(self.tables[1])
        finally:
            await self.broker.stop()


@pytest.fixture
def stage(engine: AsyncEngine, table: Table, dlq_table: Table) -> Stage:
    return Stage(engine, table, dlq_table)


def _handler(ending: str) -> Callable[..., Awaitable[None]]:
    async def handle(body: int, message: OutboxMessage) -> None:
        match ending:
            case "message.ack()":
                await message.ack()
            case "message.nack()":
                await message.nack()
            case "message.reject()":
                await message.reject()
            case "acks, then raises":
                await message.ack()
                raise ValueError
            case _ if ending in RAISED:
                raise RAISED[ending]

    return handle


async def _failing_parser(raw: Any) -> Any:
    raise ValueError


class _FailingOnReceipt(BaseMiddleware):
    async def on_receive(self) -> None:
        raise ValueError


@pytest.mark.parametrize(("ending", "policy", "expected"), CASES, ids=[f"{e} {p.name}" for e, p, _ in CASES])
async def test_ending_of_a_handler_under_a_policy(stage: Stage, ending: str, policy: AckPolicy, expected: str) -> None:
    if ending == "on_receive raises":
        stage.broker.add_middleware(_FailingOnReceipt)
    subscriber = stage.broker.subscriber(
        "orders",
        ack_policy=policy,
        retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY),
        on_undecided="dead",
        lease_ttl_seconds=LEASE_SECONDS,
        parser=_failing_parser if ending == "parser raises" else None,
    )
    subscriber(_handler(ending))
    rows, letters = await stage.play()
    became = RETRY if rows else DEAD if letters else DONE
    if became == DEAD and letters[0]["failure_reason"] == "undecided":
        became = UNDECIDED
        raised = RAISED.get(ending)
        assert raised is None or letters[0]["error_type"].endswith(raised.__name__)
    if became == RETRY and rows[0]["attempts_count"] == 0:
        became = SKIPPED
        assert LEASE_SECONDS - 30 < rows[0]["ahead"].total_seconds() <= LEASE_SECONDS
        assert rows[0]["deliveries_count"] == 0
    assert became == expected


async def test_ack_first_is_refused_and_says_why(stage: Stage) -> None:
    with pytest.raises(InvalidOption, match="crash loses it"):
        stage.broker.subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)


async def test_retry_waits_as_the_strategy_says(stage: Stage) -> None:
    @stage.broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY))
    async def handle(body: int) -> None:
        raise ValueError

    ((row,), _) = await stage.play()
    assert STRATEGY_DELAY - 10 < row["ahead"].total_seconds() <= STRATEGY_DELAY


async def test_raised_nack_gives_its_own_delay(stage: Stage) -> None:
    @stage.broker.subscriber("orders")
    async def handle(body: int) -> None:
        raise NackMessage(delay=500)

    ((row,), _) = await stage.play()
    assert 490 < row["ahead"].total_seconds() <= 500
    assert row["attempts_count"] == 1


async def test_called_nack_gives_its_own_delay(stage: Stage) -> None:
    @stage.broker.subscriber("orders")
    async def handle(body: int, message: OutboxMessage) -> None:
        await message.nack(delay=500)

    ((row,), _) = await stage.play()
    assert 490 < row["ahead"].total_seconds() <= 500


async def test_snooze_costs_neither_an_attempt_nor_a_delivery(stage: Stage) -> None:
    @stage.broker.subscriber("orders")
    async def handle(body: int, message: OutboxMessage) -> None:
        await message.snooze(500)

    ((row,), _) = await stage.play()
    assert 490 < row["ahead"].total_seconds() <= 500
    assert (row["attempts_count"], row["deliveries_count"]) == (0, 0)


async def test_first_decision_counts(stage: Stage) -> None:
    @stage.broker.subscriber("orders")
    async def handle(body: int, message: OutboxMessage) -> None:
        await message.reject()
        await message.ack()

    assert len((await stage.play())[1]) == 1


@pytest.mark.parametrize(("choice", "rows", "letters"), [("retry", 1, 0), ("done", 0, 0), ("dead", 0, 1)])
async def test_undecided_message_follows_the_subscribers_choice(
    stage: Stage, choice: Any, rows: int, letters: int
) -> None:
    @stage.broker.subscriber(
        "orders", ack_policy=MANUAL, on_undecided=choice, retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY)
    )
    async def handle(body: int) -> None: ...

    left, dead = await stage.play()
    assert (len(left), len(dead)) == (rows, letters)


async def test_undecided_message_may_be_released_at_once(engine: AsyncEngine, stage: Stage) -> None:
    twice = asyncio.Event()
    deliveries: list[int] = []

    @stage.broker.subscriber(
        "orders", ack_policy=MANUAL, on_undecided="release", max_fetch_interval=0.1, min_fetch_interval=0.1
    )
    async def handle(body: int, message: OutboxMessage) -> None:
        deliveries.append(message.raw_message.deliveries_count)
        if len(deliveries) == 2:
            await message.ack()
            twice.set()

    await stage.broker.start()
    async with AsyncSession(engine) as session, session.begin():
        await stage.broker.publish(1, "orders", session=session)
    async with asyncio.timeout(30):
        await twice.wait()
    await stage.broker.stop()
    assert deliveries == [1, 2]


async def test_error_is_kept_with_the_dead_letter(stage: Stage) -> None:
    @stage.broker.subscriber("orders", ack_policy=REJECT)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    _, (letter,) = await stage.play()
    assert (letter["failure_reason"], letter["error_type"], letter["error_message"]) == (
        "rejected",
        "ValueError",
        "broken",
    )


async def test_policy_holds_for_a_whole_batch(stage: Stage) -> None:
    @stage.broker.subscriber("orders", ack_policy=REJECT, batch=True)
    async def handle(bodies: list[int]) -> None:
        raise ValueError

    rows, letters = await stage.play(1, 2, 3)
    assert (len(rows), len(letters)) == (0, 3)


async def test_messages_of_a_batch_may_be_decided_one_by_one(stage: Stage) -> None:
    @stage.broker.subscriber("orders", batch=True, retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY))
    async def handle(bodies: list[str], batch: OutboxBatchMessage) -> None:
        for message in batch.messages:
            match message.body:
                case b"reject":
                    await message.reject()
                case b"nack":
                    await message.nack()

    rows, letters = await stage.play("fine", "reject", "nack")
    assert ([row["payload"] for row in rows], [letter["payload"] for letter in letters]) == ([b"nack"], [b"reject"])


async def test_without_a_table_for_dead_letters_a_reject_deletes(
    engine: AsyncEngine, table: Table, stage: Stage
) -> None:
    stage.broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)

    @stage.broker.subscriber("orders")
    async def handle(body: int) -> None:
        raise RejectMessage

    assert await stage.play() == ([], [])
