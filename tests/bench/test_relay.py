"""The relay's scenario: left out where there is no NATS server, and run against one where there is."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import run
from bench.arena import Arena
from bench.relay_scenarios import IN_FLIGHT, SCENARIOS
from bench.scenario import Scenario
from bench.scenarios import left_out, scenarios
from bench.table import facts_of
from faststream_outbox._internal.relay.options import RelayOptions
from tests.servers.nats_server import NatsServer

pytestmark = pytest.mark.slow

FACTS: dict[str, Any] = {"settings": {}, "versions": {}, "date": "", "rounds": 1, "scale": 1.0, "minutes": 1}
FACTS |= {"cpu": "", "cores": 2, "system": "", "python": "", "postgresql": ""}


@pytest.fixture
async def nats_address(tmp_path: Path) -> AsyncIterator[str]:
    server = NatsServer(tmp_path)
    await server.start()
    yield server.url
    server.kill()


def test_relay_is_left_out_without_a_server_and_the_report_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_NATS", raising=False)
    assert scenarios("relay") == []
    line = "- relay: left out, because BENCH_NATS holds no server's address"
    assert line in facts_of(FACTS | {"left_out": left_out()})
    assert line not in facts_of(FACTS | {"left_out": left_out(), "scenarios": {"relay": []}})


def test_relay_is_listed_with_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_NATS", "nats://127.0.0.1:4222")
    assert [scenario.name for scenario in scenarios("relay")] == ["relay"]
    assert left_out() == {}


def test_this_package_relays_and_forwards_to_a_stream_as_its_client_alone_does(
    nats_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_NATS", nats_address)
    entries = tuple(entry for entry in SCENARIOS[0].entries if entry.peer == "ours")
    with Arena.open() as arena:
        found = run(arena, Scenario(name="relay", title="Relay", entries=entries), rounds=1, scale=0.02)
    assert [one.error for one in found] == ["", "", "", ""]
    assert all(one.median("rate") > 0 for one in found)


def test_plain_loop_has_as_many_in_flight_as_a_relay() -> None:
    assert RelayOptions().max_in_flight == IN_FLIGHT
