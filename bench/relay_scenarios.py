"""Relay: from a queue to a stream of NATS, by the relay, by handlers that forward, and by the client alone.

`bench.scenarios` puts it into the report, where `BENCH_NATS` holds the address of a NATS server with JetStream, as
`nats-server -js` is. The client alone is the limit: it publishes what a relay would, and reads no database.
"""

from typing import Any

from bench.scenario import Entry, Scenario

IN_FLIGHT = 2000
"""As many as a relay has by default."""
FORWARDS: dict[str, Any] = {"workers": 50}
"""A handler that forwards waits for the stream's confirm: one at a time would measure that only."""


def _relay(peer: str, label: str, settings: str, messages: int, **more: Any) -> Entry:
    return Entry(peer=peer, label=label, question={"do": "relay", "settings": settings, "messages": messages, **more})


SCENARIOS = (
    Scenario(
        name="relay",
        title="Relay: from a queue to NATS JetStream",
        entries=(
            _relay("ours", "ours, relay", "relay", 50_000),
            _relay("ours", "ours, forwarding, best settings", "tuned", 10_000, **FORWARDS),
            _relay("ours", "ours, forwarding, defaults, access log off", "quiet", 5000),
            _relay("outbox19", "faststream-outbox 0.19, best settings", "tuned", 5000, **FORWARDS),
            _relay("outbox19", "faststream-outbox 0.19, defaults, access log off", "quiet", 2000),
            Entry(
                peer="ours",
                label="plain loop, same client",
                question={"do": "plain_loop", "messages": 50_000, "in_flight": IN_FLIGHT},
                is_limit=True,
            ),
        ),
        note="It ends when the stream, which is on disk, has confirmed all and every outcome is written. Relay: "
        "defaults. Best settings of forwarding: claims of 500, 50 handlers at once. The plain loop publishes the same "
        f"bodies with the same headers, {IN_FLIGHT:,} in flight, and reads no database.",
        server="BENCH_NATS",
    ),
)
