"""The doors beside the broker, with the roles of the security page: relay, gauges, health, doctor and command line."""

import pytest
from prometheus_client import CollectorRegistry

from faststream_outbox import OutboxBroker
from faststream_outbox.health import health
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from tests.cases import case
from tests.relay.playing import Played
from tests.rights.commands import run
from tests.rights.jobs import Troubles, broker_of, fill
from tests.rights.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.slow


async def test_worker_relays_a_queue(stage: Stage) -> None:
    async with stage.acting("outbox_worker") as engine:
        broker, played = broker_of(stage, engine), Played()
        troubles = Troubles(broker.client.events)
        broker.relay("orders", to=played)
        await broker.start()
        try:
            stage.execute("INSERT INTO outbox (queue, payload, key) VALUES ('orders', '1', 'k'), ('orders', '2', NULL)")
            await troubles.until(lambda: stage.ask("SELECT count(*) FROM outbox") == [(0,)])
        finally:
            await broker.stop()
    assert sorted(played.bodies) == [1, 2]


async def test_consumer_relays_a_topic(stage: Stage) -> None:
    async with stage.acting("outbox_consumer") as engine:
        broker, played = broker_of(stage, engine), Played()
        broker.relay(topic="shop", group="out", to=played)
        fill(stage, "1", "2")
        await broker.start()
        try:
            await eventually(lambda: len(played.taken) == 2)
        finally:
            await broker.stop()


@pytest.mark.parametrize("role", ["outbox_producer", "outbox_worker", "outbox_consumer", "outbox_operator"])
async def test_whoever_runs_a_broker_is_healthy(stage: Stage, role: str) -> None:
    async with stage.acting(role) as engine:
        broker = broker_of(stage, engine)
        await broker.start()
        try:
            found = await health(broker, timeout=30)
            assert (found.live, found.ready, found.unready, found.degraded) == (True, True, (), ())
            assert await broker.ping(30)
        finally:
            await broker.stop()


def shown(registry: CollectorRegistry) -> set[str]:
    """The names of all series that have a value."""
    return {one.name for metric in registry.collect() for one in metric.samples}


async def test_viewer_shows_gauges(stage: Stage) -> None:
    fill(stage, "a")
    stage.execute("INSERT INTO outbox (queue, payload) VALUES ('orders', 'a')")
    registry = CollectorRegistry()
    async with stage.acting("outbox_viewer") as engine:
        tables = {"outbox_table": stage.table, "dlq_table": stage.dlq_table, "log_tables": stage.log_tables}
        recorder = PrometheusRecorder(registry=registry, sample_every=0.1)
        broker = OutboxBroker(engine, **tables, logger=None, metrics_recorder=recorder)
        troubles = Troubles(broker.client.events)
        await broker.start()
        try:
            await troubles.until(lambda: "faststream_outbox_sample_seconds" in shown(registry))
        finally:
            await broker.stop()


LOOKS = [
    "status",
    "queues",
    "workers",
    "peek orders",
    "dead list --queue orders",
    "dead groups",
    "timers list",
    "groups list",
    "parked list",
    "inbox list",
    "schema check",
    "doctor",
]
ACTS = [
    "pause orders",
    "resume orders",
    "dead replay --queue orders --yes",
    "timers cancel orders t",
    "groups seek billing latest --yes",
    "groups delete billing --yes",
    "inbox clean --older-than 1h --yes",
]


@pytest.fixture
def filled(stage: Stage) -> Stage:
    """One of everything that commands are about."""
    stage.execute(
        "INSERT INTO outbox (queue, payload) VALUES ('orders', '1')",
        "INSERT INTO outbox (queue, payload, timer_id, next_attempt_at) VALUES ('orders', '1', 't', 'infinity')",
        "INSERT INTO outbox_dlq (original_id, message_id, queue, payload, created_at, failure_reason)"
        " VALUES (50, gen_random_uuid(), 'orders', 'x', now(), 'rejected')",
        "INSERT INTO outbox_log_offsets (consumer_group, lo, hi) VALUES ('billing', 0, 255)",
        "INSERT INTO inbox (consumer, source, message_id, received_at) VALUES ('a', 'b', 'c', '2000-01-01')",
    )
    return stage


@pytest.mark.parametrize("path", [None, "''"], ids=["usual path", "empty path"])
def test_viewer_runs_the_commands_that_look(filled: Stage, path: str | None) -> None:
    with filled.login("outbox_viewer", search_path=path) as address:
        for command in LOOKS:
            with case(command):
                result = run(address, command)
                said = result.stdout + result.stderr
                assert "ermission denied" not in said, said
                assert "may not run" not in said, said
                assert result.exit_code in (0, 1), said


def test_operator_runs_the_commands_that_act(filled: Stage) -> None:
    with filled.login("outbox_operator") as address:
        for command in ACTS:
            with case(command):
                result = run(address, command)
                assert result.exit_code == 0, result.stdout + result.stderr
    assert filled.ask("SELECT count(*) FROM outbox_dlq") == [(0,)]
