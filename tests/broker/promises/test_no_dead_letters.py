"""A broker that says nothing about dead letters warns when it starts to consume: what fails for good is deleted."""

import warnings
from collections.abc import AsyncIterator, Callable
from inspect import currentframe
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, OutboxRouter, TestOutboxBroker
from faststream_outbox.errors import OutboxWarning
from faststream_outbox.fastapi import OutboxRouter as FastAPIRouter

Make = Callable[..., OutboxBroker]


@pytest.fixture
async def make(engine: AsyncEngine, table: Table) -> AsyncIterator[Make]:
    made: list[OutboxBroker] = []

    def make(*, subscribes: bool = True, **options: Any) -> OutboxBroker:
        broker = OutboxBroker(engine, outbox_table=table, logger=None, **options)
        if subscribes:
            broker.subscriber("orders")(_handle)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        await broker.stop()


async def _handle(body: int) -> None: ...


async def _warnings_of_start(broker: OutboxBroker) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await broker.start()
    return [each for each in caught if issubclass(each.category, OutboxWarning)]


async def test_start_warns_at_the_line_that_made_the_broker_and_names_both_answers(
    engine: AsyncEngine, table: Table
) -> None:
    frame = currentframe()
    assert frame is not None
    broker = OutboxBroker(engine, outbox_table=table, logger=None)
    line = frame.f_lineno - 1
    broker.subscriber("orders")(_handle)
    (warning,) = await _warnings_of_start(broker)
    await broker.stop()
    assert (warning.filename, warning.lineno) == (__file__, line)
    for said in ("deleted", "dlq_table=make_dlq_table(metadata)", "dlq_table=None"):
        assert said in str(warning.message)


async def test_it_is_said_once(make: Make) -> None:
    broker = make()
    await _warnings_of_start(broker)
    await broker.stop()
    assert await _warnings_of_start(broker) == []


async def test_subscriber_of_a_router_counts(make: Make) -> None:
    broker, router = make(subscribes=False), OutboxRouter()
    router.subscriber("orders")(_handle)
    broker.include_router(router)
    assert len(await _warnings_of_start(broker)) == 1


async def test_router_of_fastapi_passes_it_on(engine: AsyncEngine, table: Table) -> None:
    for options, expected in (({}, 1), ({"dlq_table": None}, 0)):
        router = FastAPIRouter(engine, outbox_table=table, logger=None, **options)
        router.subscriber("orders")(_handle)
        assert len(await _warnings_of_start(router.broker)) == expected
        await router.broker.stop()


async def test_who_has_answered_or_does_not_consume_hears_nothing(make: Make, dlq_table: Table) -> None:
    for options in ({"dlq_table": None}, {"dlq_table": dlq_table}, {"subscribes": False}):
        assert await _warnings_of_start(make(**options)) == []


async def test_test_broker_does_not_warn(make: Make) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OutboxWarning)
        async with TestOutboxBroker(make(), run_loops=True):
            pass
