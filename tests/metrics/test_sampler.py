"""One process of a fleet asks the database for gauges, and another takes over; what is asked, as bounded gauges."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events.types import StatementFailed, StatementWorks
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.metrics import sampler
from faststream_outbox._internal.metrics.sampler import Reading
from faststream_outbox._internal.schema.log_tables import make_log_tables
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import InvalidOption
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.overview import BlockedKey, GapStatus, QueueStatus
from faststream_outbox.overview import Process as Seen
from tests.metrics.meters import points
from tests.tables import all_existing
from tests.waiting import eventually

EVERY = 0.1


@pytest.fixture(autouse=True)
def tries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "TRY_SECONDS", 0.0)


class Process:
    """A broker with a recorder, as a process of its own would have them."""

    def __init__(self, engine: AsyncEngine, table: Table, dlq_table: Table | None = None, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.broker = OutboxBroker(
            engine,
            outbox_table=table,
            dlq_table=dlq_table,
            logger=None,
            graceful_timeout=0,
            metrics_recorder=PrometheusRecorder(registry=self.registry, sample_every=EVERY),
            **options,
        )

    def value(self, name: str, **labels: str) -> float | None:
        for metric in self.registry.collect():
            for one in metric.samples:
                if one.name == f"faststream_outbox_{name}" and labels.items() <= one.labels.items():
                    return one.value
        return None

    @property
    def leads(self) -> bool:
        return self.value("sample_seconds") is not None


@pytest.fixture
async def one(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Process]:
    process = Process(engine, table, dlq_table)
    yield process
    await process.broker.stop()


@pytest.fixture
async def other(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Process]:
    process = Process(engine, table, dlq_table)
    yield process
    await process.broker.stop()


async def publish(process: Process, engine: AsyncEngine, queue: str = "orders", count: int = 3) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await process.broker.publish_batch(*range(count), queue=queue, session=session)


async def test_gauges_show_what_waits_and_forget_what_is_gone(one: Process, engine: AsyncEngine) -> None:
    await publish(one, engine)
    await one.broker.start()
    await eventually(lambda: one.value("queue_ready", queue="orders") == 3)
    assert one.value("queue_oldest_ready_seconds", queue="orders") is not None
    assert one.value("sample_failed", question="queues") == 0
    assert (one.value("connections") or 0) >= 1
    assert one.value("live_rows", table="outbox") is not None
    async with engine.begin() as connection:
        await connection.execute(text("delete from outbox"))
    await eventually(lambda: one.value("queue_ready", queue="orders") is None)


async def test_opentelemetry_shows_the_same(engine: AsyncEngine, table: Table) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    recorder = OpenTelemetryRecorder(meter_provider=provider, sample_every=EVERY)
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None, metrics_recorder=recorder)
    await broker.start()
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish(1, "orders", session=session)

    def shown() -> list[Any]:
        return points(reader, "messaging.outbox.queue_ready", queue="orders")

    await eventually(lambda: [point.value for point in shown()] == [1])
    await broker.stop()
    assert shown() == []


async def test_one_of_two_asks_and_the_other_takes_over(one: Process, other: Process, engine: AsyncEngine) -> None:
    await one.broker.start()
    await eventually(lambda: one.leads)
    await other.broker.start()
    await publish(one, engine)
    await eventually(lambda: one.value("queue_ready", queue="orders") == 3)
    both = (one, other)
    await eventually(lambda: sum(process.leads for process in both) == 1)
    leader, follower = both if one.leads else (other, one)
    await leader.broker.stop()
    assert not leader.leads
    await eventually(lambda: follower.value("queue_ready", queue="orders") == 3)


async def test_a_leader_whose_connection_is_cut_asks_again_or_lets_another(one: Process, engine: AsyncEngine) -> None:
    await one.broker.start()
    await eventually(lambda: one.leads)
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'outbox % overview %'"
    async with engine.begin() as connection:
        await connection.execute(text(cut))
    await publish(one, engine)
    await eventually(lambda: one.value("queue_ready", queue="orders") == 3)


async def test_the_lock_of_who_is_silent_is_given_to_somebody_else(engine: AsyncEngine, table: Table) -> None:
    sql = statements("sample", Names.of(table))["lock_sample"]
    frozen, waiting = DedicatedConnection(engine), DedicatedConnection(engine)
    async with frozen.holding(sql, {"name": "fleet"}, idle_seconds=0.5) as is_held:
        assert is_held

        async def is_free() -> bool:
            async with waiting.holding(sql, {"name": "fleet"}) as is_ours:
                return is_ours

        assert not await is_free()
        await eventually(is_free)


async def test_a_question_that_fails_is_an_event_and_nothing_else(
    one: Process, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    one.broker.client.events.subscribe(heard.append, StatementFailed, StatementWorks)
    await one.broker.start()
    await eventually(lambda: one.leads)
    running: Any = one.broker._sampler
    answered = running._overview.queues

    async def fail() -> Any:
        raise PermissionError("no right")

    running._overview.queues = fail
    await publish(one, engine)
    await eventually(lambda: one.value("sample_failed", question="queues") == 1)
    assert one.value("queue_ready", queue="orders") is None
    assert one.value("live_rows", table="outbox") is not None
    running._overview.queues = answered
    await eventually(lambda: one.value("queue_ready", queue="orders") == 3)
    assert [(type(event), event.role) for event in heard] == [
        (StatementFailed, "sample of queues"),
        (StatementWorks, "sample of queues"),
    ]


async def test_without_an_interval_nothing_is_asked(engine: AsyncEngine, table: Table) -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry=registry)
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None, metrics_recorder=recorder)
    await broker.start()
    assert broker._sampler is None
    assert not any("queue_ready" in metric.name for metric in registry.collect())
    await broker.stop()


def test_an_interval_is_a_time() -> None:
    with pytest.raises(InvalidOption, match="sample_every must be"):
        PrometheusRecorder(registry=CollectorRegistry(), sample_every=0)


async def test_nobody_asks_after_the_stop(one: Process, engine: AsyncEngine) -> None:
    await one.broker.start()
    await eventually(lambda: one.leads)
    await one.broker.stop()
    asked = "select count(*) from pg_stat_activity where application_name like 'outbox % overview %'"

    async def nobody_is_left() -> bool:
        async with engine.connect() as connection:
            return not (await connection.execute(text(asked))).scalar_one()

    await eventually(nobody_is_left)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox sampler"]


async def test_topics_have_gauges(engine: AsyncEngine, table: Table, metadata: MetaData, builder: Engine) -> None:
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        process = Process(engine, table, log_tables=tables)

        @process.broker.subscriber(topic="orders", group="billing")
        async def bill(order: int) -> None:
            await asyncio.Event().wait()

        await process.broker.start()
        async with AsyncSession(engine) as session, session.begin():
            await process.broker.publish_batch(1, 2, 3, topic="orders", session=session)
        await eventually(lambda: process.value("group_lag_messages", group="billing", uri="orders") == 3)
        assert process.value("group_members", group="billing") == 1
        assert process.value("oldest_gap_seconds", log="outbox_log") == 0
        await process.broker.stop()


def values(readings: Iterable[Reading]) -> dict[tuple[str, ...], float]:
    return {(one.series.name, *one.labels.values()): one.value for one in readings}


QUEUE = QueueStatus("orders", 0, 0, 0, 0, 0.0, is_paused=False, is_estimate=False)
GROUP = GroupStatus(
    "billing", "orders", 1, 256, None, None, 0, 0, 0, has_more=False, messages=0, seconds=0.0, is_estimate=False
)


def test_queues_as_gauges() -> None:
    queue = replace(QUEUE, ready=5, scheduled=4, leased=3, dead=2, oldest_ready_seconds=1.5, is_paused=True)
    assert values(sampler.of_queues([queue])) == {
        ("queue_ready", "orders"): 5,
        ("queue_scheduled", "orders"): 4,
        ("queue_leased", "orders"): 3,
        ("queue_dead", "orders"): 2,
        ("queue_set_apart", "orders"): 0,
        ("queue_oldest_ready_seconds", "orders"): 1.5,
        ("queue_paused", "orders"): 1,
    }


def test_of_ten_thousand_queues_those_with_the_most_have_gauges_of_their_own() -> None:
    queues = [replace(QUEUE, queue=f"q{n}", ready=n, oldest_ready_seconds=float(n)) for n in range(10_000)]
    found = values(sampler.of_queues(queues))
    ready = {name: value for (series, name), value in found.items() if series == "queue_ready"}
    assert len(ready) == sampler.MOST_NAMES + 1
    assert ready["q9999"] == 9999
    assert ready["other"] == sum(range(10_000 - sampler.MOST_NAMES))
    assert found["queue_oldest_ready_seconds", "other"] == 9999 - sampler.MOST_NAMES


def test_groups_with_their_blocked_keys() -> None:
    blocked = [BlockedKey("billing", "orders", str(n), n, "parked", 1, False, None, None) for n in range(3)]
    billing = replace(GROUP, messages=7, seconds=2.5, members=2, parked=3)
    mailing = replace(GROUP, group="mailing", paused_since=datetime.now(UTC))
    found = values(sampler.of_groups([billing, mailing], blocked))
    of_billing = {series: value for (series, group, _), value in found.items() if group == "billing"}
    expected = {"lag_messages": 7, "lag_seconds": 2.5, "members": 2, "parked": 3, "blocked_keys": 3, "paused": 0}
    assert of_billing == {f"group_{name}": value for name, value in expected.items()}
    assert (found["group_blocked_keys", "mailing", "orders"], found["group_paused", "mailing", "orders"]) == (0, 1)


def test_oldest_gap() -> None:
    assert values(sampler.of_gaps([], "log")) == {("oldest_gap_seconds", "log"): 0}
    gaps = [GapStatus(1, 1, 9.0, None, None, None), GapStatus(2, 3, 4.0, None, None, None)]
    assert values(sampler.of_gaps(gaps, "log")) == {("oldest_gap_seconds", "log"): 9.0}


def test_connections_and_processes() -> None:
    one = Seen("3f2a9c1b", "web", 1, ("claim", "settle"), (10, 11, 12), None, 0, 0)
    same = Seen("4f2a9c1b", "web", 1, ("read",), (13,), None, 0, 0)
    other = Seen("5f2a9c1b", "web", 2, ("read",), (14,), None, 0, 0)
    assert values(sampler.of_processes([one, same, other])) == {("connections",): 5, ("processes",): 2}


def test_relays_of_which_the_age_is_known() -> None:
    known = SimpleNamespace(name="to nats", destination="nats", oldest_seconds=3.0)
    unknown = SimpleNamespace(name="to kafka", destination="kafka", oldest_seconds=None)
    assert values(sampler.of_relays([known, unknown])) == {("relay_oldest_seconds", "to nats", "nats"): 3.0}


async def test_a_question_that_fails_costs_its_own_gauges_only() -> None:
    async def fail() -> Iterable[Reading]:
        raise OSError("away")

    async def answer() -> Iterable[Reading]:
        return sampler.of_queues([replace(QUEUE, ready=1)])

    readings, failed = await sampler.ask([("groups", fail), ("queues", answer)])
    found = values(readings)
    assert (found["sample_failed", "groups"], found["sample_failed", "queues"]) == (1, 0)
    assert found["queue_ready", "orders"] == 1
    assert list(failed) == ["groups"]
    assert "sample_seconds" in {one.series.name for one in readings}
