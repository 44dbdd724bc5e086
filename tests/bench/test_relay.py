"""The relay's scenario: left out where there is no NATS server, and run against one where there is."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import run
from bench.arena import Arena
from bench.relay_scenarios import SCENARIOS
from bench.scenario import Scenario
from bench.scenarios import left_out, scenarios
from bench.table import facts_of

pytestmark = pytest.mark.slow

FACTS: dict[str, Any] = {"settings": {}, "versions": {}, "date": "", "rounds": 1, "scale": 1.0, "minutes": 1}
FACTS |= {"cpu": "", "cores": 2, "system": "", "python": "", "postgresql": ""}


@pytest.fixture
def nats_address() -> Iterator[str]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "nats-server"
    server = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


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


def test_this_package_hands_on_to_nats(nats_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_NATS", nats_address)
    entries = tuple(entry for entry in SCENARIOS[0].entries if entry.peer == "ours")
    with Arena.open() as arena:
        found = run(arena, Scenario(name="relay", title="Relay", entries=entries), rounds=1, scale=0.02)
    assert [one.error for one in found] == ["", ""]
    assert all(one.median("rate") > 0 for one in found)
