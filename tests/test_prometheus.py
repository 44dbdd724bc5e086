"""FastStream's series for the outbox: their names, and what is counted in them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from faststream.exceptions import NackMessage, RejectMessage
from prometheus_client import CollectorRegistry
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.events.types import Died, Handled, Retried
from faststream_outbox.broker import OutboxBroker
from faststream_outbox.errors import SessionRequired
from faststream_outbox.prometheus import OutboxMetricsSettingsProvider, OutboxPrometheusMiddleware
from tests.queue.witness import Witness

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
async def broker(
    engine: AsyncEngine, table: Table, dlq_table: Table, registry: CollectorRegistry
) -> AsyncIterator[OutboxBroker]:
    middleware = OutboxPrometheusMiddleware(registry=registry, app_name="shop")
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, middlewares=[middleware])
    yield broker
    await broker.stop()


@pytest.fixture
def witness(broker: OutboxBroker) -> Witness:
    witness = Witness()
    broker.client.events.subscribe(witness)
    return witness


@pytest.fixture
def sample(registry: CollectorRegistry) -> Sample:
    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"faststream_{name}", LABELS | labels)

    return value


async def publish(broker: OutboxBroker, engine: AsyncEngine, *bodies: Any) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish_batch(*bodies, queue="orders", session=session)


def test_names_are_those_of_faststream(broker: OutboxBroker, registry: CollectorRegistry) -> None:
    assert {metric.name for metric in registry.collect()} == NINE


async def test_message_that_goes_well_is_counted(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, sample: Sample
) -> None:
    inside: list[float | None] = []

    @broker.subscriber("orders")
    async def handle(body: str) -> None:
        inside.append(sample("received_messages_in_process", handler="orders"))

    await broker.start()
    await publish(broker, engine, "chair")
    await witness.wait(Handled)
    assert inside == [1]
    assert sample("received_messages_in_process", handler="orders") == 0
    assert sample("received_messages_total", handler="orders") == 1
    assert sample("received_messages_size_bytes_sum", handler="orders") == len("chair")
    assert sample("received_processed_messages_total", handler="orders", status="acked") == 1
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
    broker: OutboxBroker,
    engine: AsyncEngine,
    witness: Witness,
    sample: Sample,
    error: Exception,
    status: str,
    ending: type[Any],
) -> None:
    @broker.subscriber("orders")
    async def handle(body: str) -> None:
        raise error

    await broker.start()
    await publish(broker, engine, "chair")
    await witness.wait(ending)
    assert sample("received_processed_messages_total", handler="orders", status=status) == 1
    assert sample("received_messages_in_process", handler="orders") == 0
    exceptions = sample("received_processed_messages_exceptions_total", handler="orders", exception_type="ValueError")
    assert exceptions == (1 if status == "error" else None)


async def test_batch_counts_as_many_messages_as_it_holds(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, sample: Sample
) -> None:
    inside: list[float | None] = []

    @broker.subscriber("orders", batch=True, batch_size=3, batch_wait=5.0)
    async def handle(bodies: list[str]) -> None:
        inside.append(sample("received_messages_in_process", handler="orders"))

    await broker.start()
    await publish(broker, engine, "chair", "table", "lamp")
    await witness.wait(Handled, 3)
    assert inside == [3]
    assert sample("received_messages_in_process", handler="orders") == 0
    assert sample("received_messages_total", handler="orders") == 3
    assert sample("received_processed_messages_total", handler="orders", status="acked") == 3
    assert sample("received_messages_size_bytes_sum", handler="orders") == len("chairtablelamp")


async def test_published_messages_are_counted(broker: OutboxBroker, engine: AsyncEngine, sample: Sample) -> None:
    await publish(broker, engine, "chair", "table")
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish("lamp", "orders", session=session)
    assert sample("published_messages_total", destination="orders", status="success") == 3
    assert sample("published_messages_duration_seconds_count", destination="orders") == 2


async def test_message_that_cannot_be_published_is_counted(broker: OutboxBroker, sample: Sample) -> None:
    with pytest.raises(SessionRequired):
        await broker.publish("lamp", "orders")
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
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, middlewares=[middleware])
    witness = Witness()
    broker.client.events.subscribe(witness)

    @broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    await broker.start()
    try:
        async with AsyncSession(engine) as session, session.begin():
            await broker.publish("chair", "orders", session=session, headers={"tenant": "acme"})
        await witness.wait(Handled)
    finally:
        await broker.stop()
    assert sample("received_messages_total", handler="orders", tenant="acme", zone="eu") == 1
