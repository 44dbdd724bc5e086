"""Two subscribers of one queue in one process are warned about, wherever they were registered."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, OutboxRouter, make_outbox_table
from faststream_outbox._internal.broker.registrator import OutboxRegistrator
from faststream_outbox.errors import OutboxWarning
from faststream_outbox.log import make_log_tables
from tests.cases import each


def _broker(**options: Any) -> OutboxBroker:
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=make_outbox_table(metadata), log_tables=log_tables, **options)


def _read(place: OutboxRegistrator, queue: str = "orders") -> None:
    @place.subscriber(queue)
    async def handle(body: int) -> None: ...

    @place.subscriber(topic=queue, group="billing")
    async def bill(body: int) -> None: ...


def _broker_and_router() -> None:
    broker, router = _broker(), OutboxRouter()
    _read(broker)
    _read(router)
    broker.include_router(router)


def _two_routers(*, are_given: bool) -> None:
    routers = OutboxRouter(), OutboxRouter()
    for router in routers:
        _read(router)
    if are_given:
        _broker(routers=routers)
    else:
        _broker().include_routers(*routers)


def _nested_routers_whose_prefixes_make_one_name() -> None:
    broker, outer, inner = _broker(), OutboxRouter(prefix="a-"), OutboxRouter(prefix="b-")
    _read(inner)
    outer.include_router(inner)
    _read(broker, "a-b-orders")
    broker.include_router(outer)


def _router_that_is_included_before_it_reads() -> None:
    broker, router = _broker(), OutboxRouter(prefix="a-")
    broker.include_router(router)
    _read(broker, "a-orders")
    _read(router)


@each(
    "registering",
    [
        _broker_and_router,
        partial(_two_routers, are_given=False),
        partial(_two_routers, are_given=True),
        _nested_routers_whose_prefixes_make_one_name,
        _router_that_is_included_before_it_reads,
    ],
)
def test_shared_queue_and_group_are_warned_about_once(registering: Callable[[], None]) -> None:
    with pytest.warns(OutboxWarning) as reported:
        registering()
    texts = [str(warning.message) for warning in reported]
    assert len([text for text in texts if text.startswith("Queue ") and "two subscribers" in text]) == 1
    assert len([text for text in texts if text.startswith("Group ") and "two subscribers" in text]) == 1
    assert {warning.filename for warning in reported} == {__file__}


def test_queues_of_different_prefixes_and_a_router_included_twice_are_not_warned_about() -> None:
    broker, one, two = _broker(), OutboxRouter(prefix="a-"), OutboxRouter(prefix="b-")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _read(broker)
        _read(one)
        _read(two)
        broker.include_routers(one, two, one)
