"""Batches of topics in one transaction: all of it commits, or all of it comes again."""

import pytest

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxBatchMessage, OutboxSession
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from tests.broker.topics.stage import Stage

SOON = ConstantRetry(delay_seconds=0.02)


async def test_batch_is_one_transaction(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, batch=True, retry_strategy=SOON)
    async def handle(bodies: list[int], session: OutboxSession, outbox: BrokerOfHandler) -> None:
        stage.seen.append(bodies)
        for body in bodies:
            await stage.write(session, body)
        await outbox.publish(sum(bodies), topic="sums")
        if len(stage.seen) == 1:
            raise ValueError

    await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen[0] == [1, 2, 3]
    assert await stage.effect_numbers() == [1, 2, 3]
    assert sum(int(row["body"]) for row in await stage.in_log("sums")) == 6


@pytest.mark.slow
async def test_batch_behind_a_waiting_key_loses_nothing(stage: Stage) -> None:
    """One message of the batch may run, the others are deferred: all of them are handled once."""
    # Long enough for the others to be published and read meanwhile.
    after = ConstantRetry(delay_seconds=4.0)

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, batch=True, retry_strategy=after)
    async def handle(bodies: list[int], session: OutboxSession) -> None:
        stage.seen.append(bodies)
        for body in bodies:
            await stage.write(session, body)
        if bodies == [1] and len(stage.seen) == 1:
            raise ValueError

    await stage.broker.start()
    await stage.publish(1, key="a")
    await stage.has_deferred("retry")
    await stage.publish(2, 10, 3, keys=["a", "b", "a"])
    await stage.caught_up()
    assert stage.seen[:2] == [[1], [10]]
    assert await stage.effect_numbers() == [1, 2, 3, 10]


async def test_message_nacked_in_a_batch_rolls_all_of_it_back(stage: Stage) -> None:
    """What is not done cannot commit; the others must come again, for their effects are gone."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, batch=True, retry_strategy=SOON)
    async def handle(bodies: list[int], session: OutboxSession, batch: OutboxBatchMessage) -> None:
        stage.seen.append(bodies)
        for body in bodies:
            await stage.write(session, body)
        if len(stage.seen) == 1:
            await batch.messages[1].nack(delay=0.02)

    await stage.publish(1, 2, 3, keys=["a", "b", "c"])
    await stage.broker.start()
    await stage.caught_up()
    assert await stage.effect_numbers() == [1, 2, 3]


async def test_batch_whose_commit_fails_twice_comes_again_in_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time all of it comes from what was deferred."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, batch=True, retry_strategy=SOON)
    async def handle(bodies: list[int], session: OutboxSession) -> None:
        stage.seen.append(bodies)
        for body in bodies:
            await stage.write(session, body)
        if len(stage.seen) <= 2:

            async def broken() -> None:
                raise ValueError("no commit")

            monkeypatch.setattr(session, "commit", broken)

    await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen[0] == [1, 2, 3]
    assert await stage.effect_numbers() == [1, 2, 3]
