"""Groups of topics that operators pause and delete through the broker."""

import pytest
from faststream.exceptions import IncorrectState

from faststream_outbox import TestOutboxBroker
from faststream_outbox.errors import UnknownName
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


async def test_group_is_paused_and_resumed_through_the_broker(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def bill(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1)
    await stage.saw(1)
    operator = stage.another()
    assert await operator.groups.pause("billing", "orders")

    async def is_left() -> bool:
        return (await operator.groups.list("billing"))[0].slots == 0

    await eventually(is_left)
    assert await stage.broker.ping()
    await stage.publish(2)
    assert [(each.name, each.uri) for each in await operator.groups.paused()] == [("billing", "orders")]
    assert stage.seen == [1]
    assert await operator.groups.resume("billing", "orders")
    assert await stage.saw(2) == [1, 2]
    with pytest.raises(UnknownName, match="billing"):
        await operator.groups.pause("biling", "orders")
    assert await operator.parked.list() == []


async def test_test_broker_refuses_what_is_for_operators(stage: Stage) -> None:
    async with TestOutboxBroker(stage.broker) as broker:
        with pytest.raises(IncorrectState, match="fake_client"):
            _ = broker.groups
