"""Every scenario that `python -m bench` knows, in the order of the report.

Sizes are those of `--scale 1`. A slow peer gets fewer messages, so that a round ends; rates say the same. Those of
topics and of the relay have modules of their own.
"""

import os
from typing import Any

from bench import log_scenarios, relay_scenarios
from bench.scenario import Entry, Run, Scenario, ask_at_rest, ask_under_snapshot
from bench.special import cost, fresh, together

OTHERS = 1_000_000
CHURN = 20_000
SLOW: dict[str, Any] = {"sleep": 0.01, "workers": 100}


def _publish(peer: str, label: str, how: str = "", messages: int = 1000, writers: int = 1) -> Entry:
    question = {"do": "publish", "how": how, "messages": messages, "writers": writers}
    return Entry(peer=peer, label=label, question=question, is_limit=peer == "raw")


def _many(peer: str, label: str, how: str = "", messages: int = 25_000, *, is_limit: bool = False) -> Entry:
    question = {"do": "publish_many", "how": how, "messages": messages}
    return Entry(peer=peer, label=label, question=question, is_limit=is_limit or peer == "raw")


def _drain(peer: str, label: str, settings: str, messages: int, run: Run | None = None, **more: Any) -> Entry:
    question = {"do": "drain", "settings": settings, "messages": messages, **more}
    return Entry(peer=peer, label=label, question=question, run=run, is_limit=peer == "raw")


def _latency(peer: str, label: str, settings: str, run: Run | None = None, **more: Any) -> Entry:
    return Entry(
        peer=peer, label=label, question={"do": "latency", "settings": settings, "seconds": 4.0, **more}, run=run
    )


def _timers(peer: str, label: str, settings: str) -> Entry:
    return Entry(peer=peer, label=label, question={"do": "timers", "settings": settings, "count": 1000})


def _processes(count: int) -> Entry:
    question = {"settings": "tuned", "messages": 20_000, "processes": count}
    return Entry(peer="ours", label=f"{count} process" + "es" * (count > 1), question=question, run=together)


LATENCY = (
    ("ours", "ours", "quiet"),
    ("outbox19", "faststream-outbox 0.19", "quiet"),
    ("sqlbroker", "sqlbroker, polling every 50 ms", "tuned"),
    ("pgqueuer", "PgQueuer", "defaults"),
    ("procrastinate", "Procrastinate", "defaults"),
    ("pgmq", "pgmq, read_with_poll", "defaults"),
)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="publish-one",
        title="Publish: one a transaction beside a business row, one writer",
        entries=(
            _publish("ours", "ours", "after_commit"),
            _publish("ours", "ours, engine", "engine"),
            _publish("ours", "bare INSERT, same session", "bare insert"),
            _publish("ours", "business row alone, same session", "business"),
            _publish("outbox19", "faststream-outbox 0.19"),
            _publish("sqlbroker", "sqlbroker"),
            _publish("pgqueuer", "PgQueuer (bare asyncpg)"),
            _publish("procrastinate", "Procrastinate (bare psycopg)"),
            _publish("pgmq", "pgmq (bare asyncpg)"),
            _publish("raw", "bare asyncpg"),
        ),
    ),
    Scenario(
        name="publish-sixteen",
        title="Publish: one a transaction beside a business row, 16 writers in one process",
        entries=(
            _publish("ours", "ours", "after_commit", 3000, 16),
            _publish("ours", 'ours, notify="off"', "off", 3000, 16),
            _publish("ours", 'ours, notify="in_transaction"', "in_transaction", 3000, 16),
            _publish("outbox19", "faststream-outbox 0.19", "", 3000, 16),
            _publish("sqlbroker", "sqlbroker (no wake-ups)", "", 3000, 16),
            _publish("pgqueuer", "PgQueuer (bare asyncpg)", "", 3000, 16),
            _publish("procrastinate", "Procrastinate (bare psycopg)", "", 3000, 16),
            _publish("pgmq", "pgmq (bare asyncpg, no wake-ups)", "", 5000, 16),
            _publish("raw", "bare asyncpg, no wake-ups", "", 5000, 16),
        ),
    ),
    Scenario(
        name="publish-thousand",
        title="Publish: 1,000 a transaction",
        entries=(
            _many("ours", "ours", "after_commit"),
            _many("ours", "ours, engine", "engine"),
            _many("ours", "by hand, same table", "by hand", is_limit=True),
            _many("outbox19", "faststream-outbox 0.19"),
            _many("sqlbroker", "sqlbroker", messages=5000),
            _many("pgqueuer", "PgQueuer"),
            _many("procrastinate", "Procrastinate", messages=5000),
            _many("pgmq", "pgmq"),
            _many("raw", "bare asyncpg, table of 0.19"),
        ),
        note="By hand: asyncpg, one statement, bodies encoded one by one and ids read. "
        "On the table of 0.19, bodies are encoded beforehand and no ids are read.",
    ),
    Scenario(
        name="drain-default",
        title="Drain: default settings",
        entries=(
            _drain("ours", "ours", "defaults", 20_000),
            _drain("ours", "ours, access log off", "quiet", 20_000),
            _drain("outbox19", "faststream-outbox 0.19", "defaults", 5000),
            _drain("outbox19", "faststream-outbox 0.19, access log off", "quiet", 5000),
            _drain("sqlbroker", "sqlbroker, fetches of 10", "defaults", 1000),
            _drain("pgqueuer", "PgQueuer", "defaults", 20_000),
            _drain("procrastinate", "Procrastinate", "defaults", 500),
            _drain("pgmq", "pgmq by 10", "defaults", 20_000),
            _drain("raw", "bare asyncpg by 10", "by 10", 20_000),
        ),
        note="An empty handler. sqlbroker has no defaults: its README's fetches of 10, without its pauses.",
    ),
    Scenario(
        name="drain-best",
        title="Drain: best settings",
        entries=(
            _drain("ours", "ours", "tuned", 50_000),
            _drain("ours", "ours, apply_types=False", "untyped", 50_000),
            _drain("outbox19", "faststream-outbox 0.19", "tuned", 25_000),
            _drain("sqlbroker", "sqlbroker", "tuned", 25_000),
            _drain("pgqueuer", "PgQueuer", "tuned", 50_000),
            _drain("procrastinate", "Procrastinate", "tuned", 1000),
            _drain("pgmq", "pgmq by 100 (no framework)", "tuned", 50_000),
            _drain("raw", "bare asyncpg by 100", "by 100", 50_000),
        ),
        note="An empty handler, claims of 500, no access log.",
    ),
    Scenario(
        name="drain-engine",
        title="Drain: the engine alone, claims of 100",
        entries=(
            _drain("ours", "ours, engine", "engine", 50_000),
            _drain("raw", "bare asyncpg by 100", "by 100", 50_000),
        ),
        note="Bare asyncpg works on the table of faststream-outbox 0.19.",
    ),
    Scenario(
        name="drain-batch",
        title="Drain: batch handlers",
        entries=(
            _drain("ours", "ours", "batch", 50_000),
            _drain("ours", "ours, engine", "engine batch", 50_000),
            _drain("sqlbroker", "sqlbroker", "batch", 50_000),
            _drain("raw", "bare asyncpg by 100", "by 100", 50_000),
            _drain("raw", "bare asyncpg by 500", "by 500", 50_000),
        ),
        note="Batches of up to 500 (sqlbroker: 1,000).",
    ),
    Scenario(
        name="drain-slow",
        title="Drain: a handler of 10 ms, 100 at once",
        entries=(
            _drain("ours", "ours", "quiet", 2500, **SLOW),
            _drain("ours", "ours, fetch_batch_size=500", "tuned", 2500, **SLOW),
            _drain("outbox19", "faststream-outbox 0.19", "quiet", 1500, **SLOW),
            _drain("sqlbroker", "sqlbroker", "tuned", 2500, **SLOW),
            _drain("pgqueuer", "PgQueuer", "tuned", 2500, **SLOW),
            _drain("procrastinate", "Procrastinate", "tuned", 1000, **SLOW),
        ),
        note="100 handlers of 10 ms could do 10,000 a second if nothing else took time.",
    ),
    Scenario(
        name="latency",
        title="Latency at 20 a second, milliseconds from COMMIT to handler",
        entries=tuple(_latency(*facts) for facts in LATENCY),
        value="ms",
        unit="ms",
    ),
    Scenario(
        name="latency-churn",
        title="The same under an old snapshot, after 20,000 rows were inserted and deleted",
        entries=tuple(_latency(*facts, run=ask_under_snapshot, churn=CHURN) for facts in LATENCY),
        value="ms",
        unit="ms",
    ),
    Scenario(
        name="others",
        title="Drain with a million scheduled rows of other queues in the table",
        entries=(
            _drain("ours", "ours", "tuned", 15_000, ask_at_rest, others=OTHERS),
            _drain("ours", "ours, without them", "tuned", 15_000, ask_at_rest),
            _drain("ours", "ours, engine", "engine", 100_000, ask_at_rest, others=OTHERS),
            _drain("ours", "ours, engine, without them", "engine", 100_000, ask_at_rest),
            _drain("outbox19", "faststream-outbox 0.19", "tuned", 7500, ask_at_rest, others=OTHERS),
            _drain("pgqueuer", "PgQueuer", "tuned", 7500, ask_at_rest, others=OTHERS),
            _drain("procrastinate", "Procrastinate", "tuned", 100, ask_at_rest, others=OTHERS),
        ),
        rounds=3,
    ),
    Scenario(
        name="snapshot",
        title="Drain with an old snapshot held open",
        entries=(
            _drain("ours", "ours", "tuned", 30_000, ask_under_snapshot),
            _drain("ours", "ours, engine", "engine", 200_000, ask_under_snapshot),
            _drain("ours", "ours, engine, without it", "engine", 200_000),
            _drain("outbox19", "faststream-outbox 0.19", "tuned", 30_000, ask_under_snapshot),
            _drain("pgqueuer", "PgQueuer", "tuned", 30_000, ask_under_snapshot),
            _drain("pgmq", "pgmq by 100", "tuned", 30_000, ask_under_snapshot),
        ),
        note="The last tenth by the first tenth says how much slower it became.",
    ),
    Scenario(
        name="keyed",
        title="Drain of keyed messages, the engine alone",
        entries=(
            _drain("ours", "no keys", "engine", 25_000),
            _drain("ours", "10,000 keys", "engine", 25_000, keys=10_000),
            _drain("ours", "200 keys of 125", "engine", 25_000, keys=200),
            _drain("ours", "200 keys of 1,000", "engine", 200_000, keys=200),
        ),
    ),
    Scenario(
        name="timers",
        title="Timers: milliseconds late, 1,000 of them between 0.2 and 5 s ahead",
        entries=(
            _timers("ours", "ours", "quiet"),
            _timers("outbox19", "faststream-outbox 0.19", "quiet"),
            _timers("pgqueuer", "PgQueuer", "defaults"),
            _timers("procrastinate", "Procrastinate", "tuned"),
        ),
        value="ms",
        unit="ms",
        rounds=1,
    ),
    Scenario(
        name="processes",
        title="Drain by several processes",
        entries=(_processes(1), _processes(2), _processes(4)),
        note="Server and workers share the machine's cores.",
    ),
    Scenario(
        name="cost",
        title="What a message of a drain costs",
        entries=(
            _drain("ours", "ours, engine, claims of 100", "engine", 10_000, cost),
            _drain("ours", "ours, best settings", "tuned", 10_000, cost),
            _drain("ours", "ours, defaults, access log off", "quiet", 5000, cost),
            _drain("outbox19", "faststream-outbox 0.19, best settings", "tuned", 5000, cost),
            _drain("outbox19", "faststream-outbox 0.19, defaults, access log off", "quiet", 2000, cost),
            _drain("pgqueuer", "PgQueuer, best settings", "tuned", 10_000, cost),
        ),
        value="wal_bytes",
        unit="bytes of WAL a message",
    ),
    Scenario(
        name="memory",
        title="Memory",
        entries=(
            Entry(
                peer="ours",
                label="resident set over a drain",
                question={"do": "memory", "settings": "tuned", "messages": 1_000_000},
                run=fresh,
            ),
            Entry(
                peer="ours",
                label="one call with 100,000 bodies of 1,000 bytes",
                question={"do": "publish_call", "bodies": 100_000, "size": 1000},
                run=fresh,
            ),
            Entry(
                peer="ours",
                label="20 idle subscribers",
                question={"do": "idle", "subscribers": 20, "seconds": 10.0},
                run=fresh,
            ),
        ),
        value="",
        unit="",
        rounds=1,
    ),
    *log_scenarios.SCENARIOS,
    *relay_scenarios.SCENARIOS,
)


def scenarios(parts: str = "") -> list[Scenario]:
    """Those that can be run here, whose name contains one of the parts, which are separated by commas."""
    return [scenario for scenario in _named(parts) if not scenario.server or os.environ.get(scenario.server)]


def left_out(parts: str = "") -> dict[str, str]:
    """The names of the others, each with what it lacks."""
    lacking = [scenario for scenario in _named(parts) if scenario.server and not os.environ.get(scenario.server)]
    return {scenario.name: f"left out, because {scenario.server} holds no server's address" for scenario in lacking}


def _named(parts: str) -> list[Scenario]:
    return [scenario for scenario in SCENARIOS if any(part in scenario.name for part in parts.split(","))]
