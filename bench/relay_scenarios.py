"""Relay: what the handler of a queue returns is published to NATS by FastStream's own publisher.

`bench.scenarios` puts it into the report, where `BENCH_NATS` holds the address of a NATS server.
"""

from bench.scenario import Entry, Scenario


def _relay(peer: str, label: str, settings: str, messages: int) -> Entry:
    return Entry(peer=peer, label=label, question={"do": "relay", "settings": settings, "messages": messages})


SCENARIOS = (
    Scenario(
        name="relay",
        title="Relay: from a queue to NATS",
        entries=(
            _relay("ours", "ours, best settings", "tuned", 10_000),
            _relay("ours", "ours, defaults, access log off", "quiet", 5000),
            _relay("outbox19", "faststream-outbox 0.19, best settings", "tuned", 5000),
            _relay("outbox19", "faststream-outbox 0.19, defaults, access log off", "quiet", 2000),
        ),
        note="It ends when all has arrived at a bare subscriber, which is in the same process and in its CPU. "
        "Core NATS, which confirms nothing: to lose nothing, forward to a JetStream stream.",
        server="BENCH_NATS",
    ),
)
