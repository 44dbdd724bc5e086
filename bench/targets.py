"""Targets: what this package aims at, as ratios within one run, and how to read them from the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.scenario import Found

Results = Mapping[str, Sequence[Found]]
Verdict = tuple[str, bool]
MS_P50, MS_P99 = 2.5, 6.0
CALM = 0.25
"""The share of the machine that others may take before times say nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """A line of the table of targets."""

    scenario: str
    text: str
    judge: Callable[[Results], Verdict]
    is_timed: bool = True
    """Whether neighbours on the machine can change the answer; counts and CPU they cannot."""

    def verdict(self, results: Results) -> tuple[str, str]:
        """What was found, and in words whether that is enough."""
        read = _Read(results)
        try:
            text, is_met = self.judge(read)
        except (KeyError, IndexError, ZeroDivisionError):
            return "not measured in this run", ""
        if self.is_timed and read.disturbance > CALM:
            return text, "too disturbed to say"
        return text, "met" if is_met else "**not met**"


class _Read(dict[str, Sequence[Found]]):
    """Results that remember which of them were read, to know how disturbed those were."""

    def __init__(self, results: Results) -> None:
        super().__init__(results)
        self.disturbance = 0.0

    def __getitem__(self, name: str) -> Sequence[Found]:
        entries = super().__getitem__(name)
        shares = [share for one in entries for share in one.each("neighbours")]
        self.disturbance = max(self.disturbance, median(shares) if shares else 0.0)
        return entries


def found(results: Results, scenario: str, label: str) -> Found:
    """The answers of an entry."""
    for one in results[scenario]:
        if one.entry.label == label and one.answers:
            return one
    raise KeyError(label)


def _rate(results: Results, scenario: str, label: str) -> float:
    return found(results, scenario, label).median("rate")


def _ratio(results: Results, ours: tuple[str, str], other: tuple[str, str]) -> float:
    return _rate(results, *ours) / _rate(results, *other)


NINETEEN = "faststream-outbox 0.19"


def _drain_default(results: Results) -> Verdict:
    peer = ("drain-default", NINETEEN)
    loud = _ratio(results, ("drain-default", "ours"), peer)
    quiet = _ratio(results, ("drain-default", "ours, access log off"), peer)
    return f"{loud:.1f} ×; access log off {quiet:.1f} ×", loud >= 5 and quiet >= 8


def _drain_best(results: Results) -> Verdict:
    # Like for like: 0.19 keeps FastStream's types too.
    peer = _ratio(results, ("drain-best", "ours"), ("drain-best", NINETEEN))
    queuer = _ratio(results, ("drain-best", "ours"), ("drain-best", "PgQueuer"))
    untyped = _ratio(results, ("drain-best", "ours, apply_types=False"), ("drain-best", NINETEEN))
    return (
        f"{peer:.2f} × 0.19, {queuer:.2f} × PgQueuer; with apply_types=False {untyped:.2f} × 0.19",
        peer >= 1.8 and queuer >= 1.0,
    )


def _drain_engine(results: Results) -> Verdict:
    ratio = _ratio(results, ("drain-engine", "ours, engine"), ("drain-engine", "bare asyncpg by 100"))
    return f"{ratio:.2f} ×", ratio >= 1.2


def _drain_batch(results: Results) -> Verdict:
    raw = _ratio(results, ("drain-batch", "ours"), ("drain-batch", "bare asyncpg by 100"))
    peer = _ratio(results, ("drain-batch", "ours"), ("drain-batch", "sqlbroker"))
    return f"{raw:.2f} × bare asyncpg, {peer:.2f} × sqlbroker", raw >= 1.0 and peer >= 1.8


def _publish_one(results: Results) -> Verdict:
    alone, bare, ours, peer = (
        1 / _rate(results, "publish-one", label)
        for label in ("business row alone, same session", "bare INSERT, same session", "ours", NINETEEN)
    )
    adds, whole = (ours - alone) / (bare - alone), peer / ours
    return f"adds {adds:.2f} ×; whole {whole:.2f} ×", adds <= 1.25 and whole >= 1.1


def _publish_sixteen(results: Results) -> Verdict:
    off = _ratio(results, ("publish-sixteen", "ours"), ("publish-sixteen", 'ours, notify="off"'))
    inside = _ratio(results, ("publish-sixteen", "ours"), ("publish-sixteen", 'ours, notify="in_transaction"'))
    return f"{off:.2f} × off, {inside:.2f} × in_transaction", off >= 0.95 and inside >= 1.8


def _publish_thousand(results: Results) -> Verdict:
    executor = _ratio(results, ("publish-thousand", "ours"), ("publish-thousand", "by hand, same table"))
    peer = _ratio(results, ("publish-thousand", "ours"), ("publish-thousand", NINETEEN))
    return f"{executor:.2f} × by hand, {peer:.2f} × 0.19", executor >= 0.95 and peer >= 2


def _latency(results: Results) -> Verdict:
    ours = found(results, "latency", "ours")
    idle = found(results, "memory", "20 idle subscribers").median("cpu_share")
    p50, p99 = ours.percentile(50), ours.percentile(99)
    return (
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, idle {idle * 100:.1f} %",
        p50 <= MS_P50 and p99 <= MS_P99 and idle < 0.01,
    )


def _others(results: Results) -> Verdict:
    engine = _ratio(results, ("others", "ours, engine"), ("others", "ours, engine, without them"))
    whole = _ratio(results, ("others", "ours"), ("others", "ours, without them"))
    return f"{whole:.2f} ×; engine {engine:.2f} ×", whole >= 0.95 and engine >= 0.95


def _snapshot(results: Results) -> Verdict:
    engine = _ratio(results, ("snapshot", "ours, engine"), ("snapshot", "ours, engine, without it"))
    decay = found(results, "snapshot", "ours, engine").median("decay")
    return f"{engine:.2f} ×; last tenth took {decay:.2f} × the first", engine >= 0.9 and decay <= 1.2


def _churn(results: Results) -> Verdict:
    before, after = found(results, "latency", "ours"), found(results, "latency-churn", "ours")
    slower = after.percentile(50) / before.percentile(50)
    dearer = after.median("server_share") / before.median("server_share")
    return f"p50 {slower:.2f} ×, server's CPU {dearer:.2f} ×", slower <= 1.5 and dearer <= 2


def _keyed(results: Results) -> Verdict:
    many = _ratio(results, ("keyed", "10,000 keys"), ("keyed", "no keys"))
    few = _ratio(results, ("keyed", "200 keys of 1,000"), ("keyed", "no keys"))
    deep = _ratio(results, ("keyed", "200 keys of 1,000"), ("keyed", "200 keys of 125"))
    return (
        f"{many:.2f} ×, {few:.2f} ×; eight times as deep {deep:.2f} ×",
        many >= 0.6 and few >= 0.3 and deep >= 0.8,
    )


def _timers(results: Results) -> Verdict:
    ours = found(results, "timers", "ours")
    p50, p99 = ours.percentile(50), ours.percentile(99)
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", p50 <= 5 and p99 <= 50


def _cost(results: Results) -> Verdict:
    ours, peer = (found(results, "cost", label) for label in ("ours, best settings", f"{NINETEEN}, best settings"))
    engine = found(results, "cost", "ours, engine, claims of 100")
    wal = ours.median("wal_bytes") / peer.median("wal_bytes")
    cpu = ours.median("cpu") / peer.median("cpu")
    hot, statements = engine.median("hot_share"), engine.median("transactions")
    return (
        f"HOT {hot:.2f}, WAL {wal:.2f} ×, statements {statements:.3f}, Python CPU {cpu:.2f} ×",
        hot >= 0.95 and wal <= 0.7 and statements <= 0.03 and cpu <= 0.6,
    )


def _memory(results: Results) -> Verdict:
    sizes = found(results, "memory", "resident set over a drain").answers[0]["rss"][1:]
    call = found(results, "memory", "one call with 100,000 bodies of 1,000 bytes").median("times")
    is_flat = max(sizes) <= 1.1 * min(sizes) and max(sizes) < 120e6
    return (
        f"{min(sizes) / 1e6:.0f} to {max(sizes) / 1e6:.0f} MB; one call {call:.1f} ×",
        is_flat and call <= 3,
    )


def _dispatch(results: Results) -> Verdict:
    rate = _rate(results, "dispatch-small", "ours by 1,000")
    ratio = _rate(results, "dispatch-large", "ours by 1,000") / rate
    return f"{rate:,.0f} a second; at a million {ratio:.2f} ×", rate >= 40_000 and ratio >= 0.8


def _relay(results: Results) -> Verdict:
    ours = _rate(results, "relay", "ours, relay")
    limit = ours / _rate(results, "relay", "plain loop, same client")
    forwarding, peer = (
        ours / max(_rate(results, "relay", f"{who}, {how}") for how in ("best settings", "defaults, access log off"))
        for who in ("ours, forwarding", NINETEEN)
    )
    return (
        f"{limit:.2f} × the plain loop, {forwarding:.1f} × forwarding, {peer:.1f} × 0.19",
        limit >= 0.7 and forwarding >= 3 and peer >= 5,
    )


TARGETS: Sequence[Target] = (
    Target(
        "drain through FastStream, default settings",
        "≥ 5 × 0.19 at its defaults; with the access log off ≥ 8 ×",
        _drain_default,
    ),
    Target("drain through FastStream, best settings", "≥ 1.8 × 0.19 tuned, ≥ 1.0 × PgQueuer tuned", _drain_best),
    Target("drain, engine alone, claims of 100", "≥ 1.2 × bare claim and delete on the table of 0.19", _drain_engine),
    Target("drain, batch handler through FastStream", "≥ 1.0 × bare asyncpg by 100, ≥ 1.8 × sqlbroker", _drain_batch),
    Target(
        "publish one a transaction through AsyncSession",
        "adds ≤ 1.25 × what a bare INSERT adds; whole ≥ 1.1 × 0.19",
        _publish_one,
    ),
    Target(
        "16 writers, wake-ups on",
        '≥ 0.95 × the same with notify="off", ≥ 1.8 × NOTIFY in the transaction',
        _publish_sixteen,
    ),
    Target(
        "publish 1,000 a transaction",
        "≥ 0.95 × by hand in the same table, encoding the same bodies and reading the ids; ≥ 2 × 0.19",
        _publish_thousand,
    ),
    Target("latency at 20 a second", "p50 ≤ 2.5 ms, p99 ≤ 6 ms, idle CPU below 1 % with 20 subscribers", _latency),
    Target("a million other rows in the table", "≥ 0.95 × without them", _others),
    Target("old snapshot held, 200,000 messages", "≥ 0.9 × without; last tenth ≤ 1.2 × the first", _snapshot),
    Target(
        "old snapshot held after a churn, 20 a second", "p50 ≤ 1.5 × and server's CPU ≤ 2 × the same without", _churn
    ),
    Target("keyed, 10,000 keys; 200 keys of 1,000", "≥ 0.6 ×; ≥ 0.3 × keyless, and linear", _keyed),
    Target("timers", "late by p50 ≤ 5 ms, p99 ≤ 50 ms", _timers),
    Target(
        "a message of a drain",
        "HOT ≥ 0.95; WAL ≤ 0.7 × 0.19; statements ≤ 0.03 (claims of 100); Python CPU ≤ 0.6 × 0.19",
        _cost,
        is_timed=False,
    ),
    Target(
        "memory",
        "flat within 10 % and below 120 MB over a drain of 1,000,000; one call of 100,000 bodies ≤ 3 × their size",
        _memory,
        is_timed=False,
    ),
    Target(
        "topic dispatch",
        "≥ 40,000 a second by 1,000, and the rate at a million ≥ 0.8 × the rate at 20,000",
        _dispatch,
    ),
    Target(
        "relay to NATS JetStream",
        "≥ 0.7 × the client alone in a plain loop, ≥ 3 × a forwarding handler, ≥ 5 × the forwarding of 0.19",
        _relay,
    ),
)
