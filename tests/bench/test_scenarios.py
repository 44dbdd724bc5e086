"""The benchmark's own parts fit together: scenarios name peers that exist, targets name entries that exist."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.__main__ import run
from bench.arena import Arena
from bench.log_scenarios import SCENARIOS as OF_TOPICS
from bench.peer import peers
from bench.relay_scenarios import IN_FLIGHT
from bench.relay_scenarios import SCENARIOS as OF_RELAYS
from bench.scenario import Entry, Found, Scenario, scaled
from bench.scenarios import SCENARIOS, left_out, scenarios
from bench.table import facts_of, lines, targets
from bench.targets import TARGETS
from faststream_outbox._internal.relay.options import RelayOptions
from tests.cases import each
from tests.servers.nats_server import NatsServer

FACTS: dict[str, Any] = {"settings": {}, "versions": {}, "date": "", "rounds": 1, "scale": 1.0, "minutes": 1}
FACTS |= {"cpu": "", "cores": 2, "system": "", "python": "", "postgresql": ""}


def answer(value: str) -> dict[str, Any]:
    """An answer with every number that a report may ask for."""
    numbers = dict.fromkeys(("rate", "cpu", "server_cpu", "decay", "wal_bytes", "wal_records", "transactions"), 2.0)
    shares = dict.fromkeys(("hot_share", "cpu_share", "server_share", "times", "mb"), 1.0) | {"neighbours": 0.0}
    return numbers | shares | {"ms": [1.0, 2.0, 3.0], "rss": [50e6, 50e6]}


def full_results() -> dict[str, list[Found]]:
    return {
        scenario.name: [
            # No two the same: a target divides by their difference.
            Found(entry, [answer(scenario.value) | {"rate": 100.0 + place}])
            for place, entry in enumerate(scenario.entries)
        ]
        for scenario in SCENARIOS
    }


def test_names_of_scenarios_and_labels_of_their_entries_are_unique() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert len({entry.label for entry in scenario.entries}) == len(scenario.entries), scenario.name


@each("scenario", SCENARIOS)
def test_every_entry_has_a_peer_with_a_script(scenario: Scenario) -> None:
    assert [entry.peer for entry in scenario.entries if not peers()[entry.peer].script.exists()] == []


@each("target", TARGETS)
def test_every_target_finds_what_it_judges(target: Any) -> None:
    text, is_met = target.judge(full_results())
    assert text
    assert is_met in {True, False}


@each("is_timed", [True, False])
def test_times_of_a_disturbed_run_are_no_verdict(is_timed: bool) -> None:
    results = full_results()
    for found in (one for entries in results.values() for one in entries):
        found.answers[0]["neighbours"] = 0.9
    words = {target.verdict(results)[1] for target in TARGETS if target.is_timed is is_timed}
    assert words <= ({"too disturbed to say"} if is_timed else {"met", "**not met**"})


def test_target_of_which_nothing_was_measured_is_neither_met_nor_missed() -> None:
    assert all(line.endswith("| not measured in this run |  |") for line in targets({})[2:])


@each("scenario", SCENARIOS)
def test_every_scenario_has_a_line_for_each_entry(scenario: Scenario) -> None:
    text = lines(scenario, full_results()[scenario.name])
    assert [entry.label for entry in scenario.entries if not any(entry.label in line for line in text)] == []


def test_entry_that_failed_is_named() -> None:
    scenario = SCENARIOS[0]
    found = full_results()[scenario.name]
    found[1] = Found(found[1].entry, [], "it\nbroke")
    assert any("failed, broke" in line for line in lines(scenario, found))


def test_scale_keeps_whole_thousands_and_leaves_other_numbers() -> None:
    assert scaled({"messages": 50_000, "workers": 100}, 0.33) == {"messages": 16_000, "workers": 100}
    assert scaled({"messages": 500}, 0.1) == {"messages": 100}
    assert scaled({"do": "publish_many", "messages": 2500}, 0.1) == {"do": "publish_many", "messages": 1000}


def test_page_keeps_what_stands_outside_of_its_marks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- begin: targets -->\nwhat was there\n<!-- end: targets -->\nafter\n")
    monkeypatch.setattr(page, "PAGE", path)
    monkeypatch.setattr(page, "USERS_PAGE", path)
    page.rewrite(FACTS | {"scenarios": {}})
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "what was there" not in text
    assert "| timers |" in text


@pytest.mark.slow
def test_this_package_and_the_bare_driver_run_a_scenario() -> None:
    """The whole way: a server, a process for each, questions and answers; peers from PyPI are left to `make bench`."""

    def drain(peer: str, settings: str) -> Entry:
        return Entry(peer=peer, label=peer, question={"do": "drain", "settings": settings, "messages": 200})

    cannot = Entry(peer="raw", label="has no timers", question={"do": "timers", "settings": "by 10", "count": 1})
    entries = (drain("ours", "tuned"), drain("raw", "by 10"), cannot)
    with Arena.open() as arena:
        ours, raw, none = run(arena, Scenario(name="drain", title="Drain", entries=entries), rounds=2, scale=1.0)
    assert [len(found.answers) for found in (ours, raw, none)] == [2, 2, 0]
    assert not any(found.error for found in (ours, raw, none))
    assert ours.median("rate") > 0


@pytest.mark.slow
def test_topics_are_dispatched_and_read_by_hand() -> None:
    with Arena.open() as arena:
        found = run(arena, OF_TOPICS[0], rounds=2, scale=0.1)
    assert [len(one.answers) for one in found] == [2, 2, 2]
    assert not any(one.error for one in found)


@pytest.fixture
async def nats_address(tmp_path: Path) -> AsyncIterator[str]:
    server = NatsServer(tmp_path)
    await server.start()
    yield server.url
    server.kill()


@pytest.mark.slow
def test_relay_is_left_out_without_a_server_and_the_report_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_NATS", raising=False)
    assert scenarios("relay") == []
    line = "- relay: left out, because BENCH_NATS holds no server's address"
    assert line in facts_of(FACTS | {"left_out": left_out()})
    assert line not in facts_of(FACTS | {"left_out": left_out(), "scenarios": {"relay": []}})


@pytest.mark.slow
def test_relay_is_listed_with_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_NATS", "nats://127.0.0.1:4222")
    assert [scenario.name for scenario in scenarios("relay")] == ["relay"]
    assert left_out() == {}


@pytest.mark.slow
def test_this_package_relays_and_forwards_to_a_stream_as_its_client_alone_does(
    nats_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_NATS", nats_address)
    entries = tuple(entry for entry in OF_RELAYS[0].entries if entry.peer == "ours")
    with Arena.open() as arena:
        found = run(arena, Scenario(name="relay", title="Relay", entries=entries), rounds=1, scale=0.02)
    assert [one.error for one in found] == ["", "", "", ""]
    assert all(one.median("rate") > 0 for one in found)


@pytest.mark.slow
def test_plain_loop_has_as_many_in_flight_as_a_relay() -> None:
    assert RelayOptions().max_in_flight == IN_FLIGHT
