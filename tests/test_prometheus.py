"""FastStream's series for the outbox: their names, and what is counted in them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from faststream.exceptions import NackMessage, RejectMessage
from prometheus_client import CollectorRegistry
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import Died, Handled, Retried
from faststream_outbox.errors import SessionRequired
from faststream_outbox.prometheus import OutboxMetricsSettingsProvider, OutboxPrometheusMiddleware
from tests.shop import Shop, open_shop

NINE = {
    "faststream_received_messages",
    "faststream_received_messages_size_bytes",
    "faststream_received_messages_in_process",
    "faststream_received_processed_messages",
    "faststream_received_processed_messages_duration_seconds",
    "faststream_received_processed_messages_exceptions",
    "faststream_published_messages",
    "faststream_published_messages_duration_seconds",
    "faststream_published_messages_exceptions",
}

LABELS = {"app_name": "shop", "broker": "outbox"}

Sample = Callable[..., float | None]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def shop(engine: AsyncEngine, table: Table, dlq_table: Table, registry: CollectorRegistry) -> AsyncIterator[Shop]:
    middleware = OutboxPrometheusMiddleware(registry=registry, app_name="shop")
    async with open_shop(engine, table, middleware, dlq_table) as shop:
        yield shop


@pytest.fixture
def sample(registry: CollectorRegistry) -> Sample:
    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"faststream_{name}", LABELS | labels)

    return value


def test_names_are_those_of_faststream(shop: Shop, registry: CollectorRegistry) -> None:
    assert {metric.name for metric in registry.collect()} == NINE


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        pytest.param({}, ["chair"], id="one"),
        pytest.param({"batch": True, "batch_size": 3, "batch_wait": 5.0}, ["chair", "table", "lamp"], id="a batch"),
    ],
)
async def test_as_many_messages_are_counted_as_go_well(
    options: dict[str, Any], bodies: list[str], shop: Shop, sample: Sample
) -> None:
    inside: list[float | None] = []

    @shop.broker.subscriber("orders", **options)
    async def handle(body: Any) -> None:
        inside.append(sample("received_messages_in_process", handler="orders"))

    await shop.serve(*bodies)
    assert inside == [len(bodies)]
    assert sample("received_messages_in_process", handler="orders") == 0
    assert sample("received_messages_total", handler="orders") == len(bodies)
    assert sample("received_messages_size_bytes_sum", handler="orders") == len("".join(bodies))
    assert sample("received_processed_messages_total", handler="orders", status="acked") == len(bodies)
    assert sample("received_processed_messages_duration_seconds_count", handler="orders") == 1


@pytest.mark.parametrize(
    ("error", "status", "ending"),
    [
        (ValueError("no"), "error", Retried),
        (NackMessage(), "nacked", Retried),
        (RejectMessage(), "rejected", Died),
    ],
    ids=repr,
)
async def test_failure_is_counted_by_its_kind(
    error: Exception, status: str, ending: type[Any], shop: Shop, sample: Sample
) -> None:
    @shop.broker.subscriber("orders")
    async def handle(body: str) -> None:
        raise error

    await shop.serve("chair", until=ending)
    assert sample("received_processed_messages_total", handler="orders", status=status) == 1
    assert sample("received_messages_in_process", handler="orders") == 0
    exceptions = sample("received_processed_messages_exceptions_total", handler="orders", exception_type="ValueError")
    assert exceptions == (1 if status == "error" else None)


async def test_published_messages_are_counted(shop: Shop, sample: Sample) -> None:
    await shop.publish_batch("chair", "table")
    await shop.publish("lamp")
    assert sample("published_messages_total", destination="orders", status="success") == 3
    assert sample("published_messages_duration_seconds_count", destination="orders") == 2


async def test_message_that_cannot_be_published_is_counted(shop: Shop, sample: Sample) -> None:
    with pytest.raises(SessionRequired):
        await shop.broker.publish("lamp", "orders")
    assert sample("published_messages_total", destination="orders", status="error") == 1
    assert sample("published_messages_exceptions_total", destination="orders", exception_type="SessionRequired") == 1


def test_all_messages_share_one_provider(registry: CollectorRegistry) -> None:
    middleware = OutboxPrometheusMiddleware(registry=registry)
    provider = middleware._settings_provider_factory(None)
    assert isinstance(provider, OutboxMetricsSettingsProvider)
    assert provider.messaging_system == "outbox"
    assert middleware._settings_provider_factory(object()) is provider


async def test_custom_labels_may_look_at_the_message(
    engine: AsyncEngine, table: Table, registry: CollectorRegistry, sample: Sample
) -> None:
    middleware = OutboxPrometheusMiddleware(
        registry=registry,
        app_name="shop",
        custom_labels={"tenant": lambda claim: claim.headers["tenant"] if claim is not None else "", "zone": "eu"},
    )
    async with open_shop(engine, table, middleware) as shop:

        @shop.broker.subscriber("orders")
        async def handle(body: str) -> None: ...

        await shop.broker.start()
        await shop.publish("chair", headers={"tenant": "acme"})
        await shop.witness.wait(Handled)
    assert sample("received_messages_total", handler="orders", tenant="acme", zone="eu") == 1
