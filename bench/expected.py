"""What a user may expect, as one short table: this package's own rows of the scenarios that users ask about.

Rates of one run on one machine, beside the fastest peer that publishes through SQLAlchemy and handles with a framework.
Used by `page`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.scenario import Found
from bench.table import number

PEERS = ("faststream-outbox 0.19", "sqlbroker", "PgQueuer", "Procrastinate")


class Row(NamedTuple):
    """One question of a user's, and where its answer stands."""

    question: str
    scenario: str
    label: str


ROWS = (
    Row("publish, one a transaction beside a row of yours, one connection", "publish-one", "ours"),
    Row("the same, 16 connections", "publish-sixteen", "ours"),
    Row("publish, 1,000 a transaction", "publish-thousand", "ours"),
    Row("handle, all settings at their defaults", "drain-default", "ours"),
    Row("handle, defaults, access log off", "drain-default", "ours, access log off"),
    Row("handle, tuned", "drain-best", "ours, apply_types=False"),
    Row("handle in batches", "drain-batch", "ours"),
    Row("handle, 10 ms each, 100 at once", "drain-slow", "ours, fetch_batch_size=500"),
    Row("handle in order per key, 10,000 keys, engine alone", "keyed", "10,000 keys"),
    Row("handle with two processes", "processes", "2 processes"),
    Row("read a topic, by 1,000", "dispatch-small", "ours by 1,000"),
    Row("relay to NATS JetStream", "relay", "ours, relay"),
)


def expected(results: Mapping[str, Sequence[Found]]) -> list[str]:
    """The table, of what was measured."""
    lines = ["| one process, unless it says otherwise | messages a second | the best peer's |", "|---|---:|---:|"]
    for row in ROWS:
        found = {each.entry.label: each for each in results.get(row.scenario, ()) if each.answers}
        if row.label in found:
            rates = [
                each.median("rate") for label, each in found.items() if label.startswith(PEERS) and "bare" not in label
            ]
            rate, best = found[row.label].median("rate"), max(rates, default=None)
            lines.append(f"| {row.question} | {number(rate)} | {'' if best is None else number(best)} |")
    return [*lines, *_latencies(results)]


def _latencies(results: Mapping[str, Sequence[Found]]) -> list[str]:
    found = {each.entry.label: each for each in results.get("latency", ()) if each.answers}
    if "ours" not in found:
        return []
    ours = found["ours"]
    return [
        "",
        f"From COMMIT to the handler, at 20 messages a second: {number(ours.percentile(50))} ms in the middle, "
        f"{number(ours.percentile(99))} ms for the slowest hundredth.",
    ]
