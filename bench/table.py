"""Tables of the report, in Markdown: one for each scenario, one of targets, and the facts of the run."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from bench.peer import peers
from bench.scenario import Found, Scenario
from bench.targets import TARGETS, Results

Column = tuple[str, Callable[[Found], str]]


def number(value: float) -> str:
    """As a person writes it: three digits and thousands apart."""
    if value >= 1000:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _spread(name: str) -> Callable[[Found], str]:
    def text(found: Found) -> str:
        least, most = found.spread(name)
        return f"{number(least)} – {number(most)}"

    return text


def _micros(name: str) -> Callable[[Found], str]:
    return lambda found: number(found.median(name) * 1e6) if name in found.answers[0] else ""


def _share(name: str) -> Callable[[Found], str]:
    return lambda found: f"{found.median(name) * 100:.1f} %" if name in found.answers[0] else ""


def _plain(name: str) -> Callable[[Found], str]:
    return lambda found: number(found.median(name)) if name in found.answers[0] else ""


def _rates(first: Found) -> list[Column]:
    return [
        ("a second", _plain("rate")),
        ("rounds", _spread("rate")),
        ("first row is", lambda found: f"{first.median('rate') / found.median('rate'):.2f} ×"),
        ("client CPU, µs", _micros("cpu")),
        ("server CPU, µs", _micros("server_cpu")),
        ("last by first tenth", _plain("decay")),
    ]


_LATENCIES: list[Column] = [
    ("p50", lambda found: number(found.percentile(50))),
    ("p90", lambda found: number(found.percentile(90))),
    ("p99", lambda found: number(found.percentile(99))),
    ("worst", lambda found: number(found.percentile(100))),
    (
        "COMMIT alone, p99",
        lambda found: number(found.percentile(99, "commit_ms")) if "commit_ms" in found.answers[0] else "",
    ),
    ("client CPU", _share("cpu_share")),
    ("server CPU", _share("server_share")),
]
_COSTS: list[Column] = [
    ("transactions", _plain("transactions")),
    ("WAL bytes", _plain("wal_bytes")),
    ("WAL records", _plain("wal_records")),
    ("HOT share", _plain("hot_share")),
    ("client CPU, µs", _micros("cpu")),
    ("server CPU, µs", _micros("server_cpu")),
]


def lines(scenario: Scenario, results: Sequence[Found]) -> list[str]:
    """The section of a scenario."""
    measured = [found for found in results if found.answers]
    text = [f"### {scenario.title}", ""]
    if not measured:
        return [*text, "Not measured.", ""]
    if scenario.value == "rate":
        columns = _rates(measured[0])
    elif scenario.value == "ms":
        columns = _LATENCIES
    elif scenario.value == "wal_bytes":
        columns = _COSTS
    else:
        return [*text, *(_sentence(found) for found in measured), ""]
    text += _table(scenario, columns, measured)
    text += [f"\n{found.entry.label}: failed, {found.error.splitlines()[-1]}" for found in results if found.error]
    text += ["", " ".join(filter(None, [scenario.note, _rounds(measured)]))]
    return [*text, ""]


def _rounds(measured: Sequence[Found]) -> str:
    shares = [share for found in measured for share in found.each("neighbours")]
    rounds = max(len(found.answers) for found in measured)
    scale = measured[0].answers[0].get("scale", 1.0)
    return (
        f"{rounds} round{'s' * (rounds > 1)} at scale {scale:g}; "
        f"other work took {median(shares) * 100:.0f} % of the machine meanwhile."
    )


def _table(scenario: Scenario, columns: list[Column], measured: list[Found]) -> Iterable[str]:
    filled = [(heading, [cell(found) for found in measured]) for heading, cell in columns]
    shown = [(heading, cells) for heading, cells in filled if any(cells)]
    yield "| " + " | ".join([scenario.unit, *(heading for heading, _ in shown)]) + " |"
    yield "|---" + "|---:" * len(shown) + "|"
    for place, found in enumerate(measured):
        yield "| " + " | ".join([found.entry.label, *(cells[place] for _, cells in shown)]) + " |"


def _sentence(found: Found) -> str:
    answer = found.answers[0]
    if "rss" in answer:
        sizes = [size / 1e6 for size in answer["rss"]]
        middle = sizes[1:]
        return f"- {found.entry.label}: {min(middle):.0f} to {max(middle):.0f} MB, at the end {sizes[-1]:.0f} MB"
    if "times" in answer:
        return f"- {found.entry.label}: {answer['times']:.2f} times their size of {answer['mb']:.0f} MB"
    server = answer.get("server_share", 0.0) * 100
    return f"- {found.entry.label}: {answer['cpu_share'] * 100:.1f} % of a core, the server {server:.1f} %"


def targets(results: Results) -> list[str]:
    """What is aimed at, what was found, and whether that is enough."""
    text = ["| scenario | target | measured | |", "|---|---|---|---|"]
    for target in TARGETS:
        text.append(f"| {target.scenario} | {target.text} | {' | '.join(target.verdict(results))} |")
    return text


def _whole(facts: dict[str, Any]) -> str:
    return f"{facts['rounds']} rounds, scale {facts['scale']:g}, {facts['minutes']} minutes"


def facts_of(facts: dict[str, Any]) -> list[str]:
    """Where and when and with what."""
    settings = ", ".join(f"{name}={value}" for name, value in facts["settings"].items())
    versions = [
        f"- {peers()[name].title}: " + ", ".join(f"{package} {version}" for package, version in found.items())
        for name, found in facts["versions"].items()
    ]
    # An earlier run may have measured what this one could not.
    lacking = {name: why for name, why in facts.get("left_out", {}).items() if name not in facts.get("scenarios", {})}
    return [
        f"- {facts['date']}, " + ("put together from several runs" if facts.get("is_mixed") else _whole(facts)),
        f"- {facts['cpu']}, {facts['cores']} cores for the server and the clients together, {facts['system']}",
        f"- Python {facts['python']}, PostgreSQL {facts['postgresql']} with {settings}",
        *versions,
        *(f"- {name}: {why}" for name, why in lacking.items()),
    ]
