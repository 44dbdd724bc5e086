"""Plots of a run: reads `results.json` of a folder and writes PNG and SVG files beside it.

Run by `python -m bench` in an environment of its own, because nothing else needs matplotlib; by hand:
`.venv-bench/plots/bin/python bench/plots.py docs/performance`.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

OURS, PEER, LIMIT = "#1f6feb", "#9aa4b2", "#e3e7ec"
INK = "#24292f"
CALM = 0.25
FIGURES = {
    "publish": ("publish-one", "publish-sixteen", "publish-thousand"),
    "drain": ("drain-default", "drain-best", "drain-engine", "drain-batch", "drain-slow"),
    "hold": ("others", "snapshot", "keyed", "processes"),
    "latency": ("latency", "latency-churn", "timers"),
    "topics": ("dispatch-small", "dispatch-large"),
    "relay": ("relay",),
}
TITLES = {
    "publish-one": "publish, one a transaction, one writer",
    "publish-sixteen": "publish, one a transaction, 16 writers",
    "publish-thousand": "publish, 1,000 a transaction",
    "drain-default": "drain, default settings",
    "drain-best": "drain, best settings",
    "drain-engine": "drain, engine alone, claims of 100",
    "drain-batch": "drain, batch handlers",
    "drain-slow": "drain, handler of 10 ms, 100 at once",
    "others": "drain beside a million other rows",
    "snapshot": "drain, old snapshot held",
    "keyed": "drain, keyed, engine alone",
    "processes": "drain, several processes",
    "latency": "latency at 20 a second, p50 and p99",
    "latency-churn": "the same, old snapshot over dead rows",
    "timers": "timers, how late, p50 and p99",
    "dispatch-small": "topic dispatch, 20,000 messages",
    "dispatch-large": "topic dispatch, 1,000,000 messages",
    "relay": "relay to NATS",
}


def _color(entry: dict[str, Any]) -> str:
    if entry.get("is_limit", entry["peer"] == "raw"):
        return LIMIT
    return OURS if entry["peer"] in {"ours", "topics"} else PEER


def _rates(axes: Any, entries: list[dict[str, Any]]) -> None:
    for place, entry in enumerate(entries):
        rates = [answer["rate"] for answer in entry["answers"]]
        middle = median(rates)
        axes.barh(place, middle, color=_color(entry), height=0.72)
        axes.plot([min(rates), max(rates)], [place, place], color=INK, linewidth=1)
        axes.text(max(rates), place, f"  {middle:,.0f}", va="center", fontsize=8, color=INK)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.18)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("messages a second", fontsize=8)


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _disturbed(entries: list[dict[str, Any]]) -> str:
    share = median(answer.get("neighbours", 0.0) for entry in entries for answer in entry["answers"])
    return f"   (others took {share * 100:.0f} % of the machine)" if share > CALM else ""


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _latencies(axes: Any, entries: list[dict[str, Any]]) -> None:
    for place, entry in enumerate(entries):
        ordered = sorted(ms for answer in entry["answers"] for ms in answer["ms"])
        low, high = _percentile(ordered, 50), _percentile(ordered, 99)
        axes.plot([low, high], [place, place], color=_color(entry), linewidth=5, solid_capstyle="round")
        axes.plot(low, place, "o", color=_color(entry), markersize=8)
        axes.text(high * 1.25, place, f"{_ms(low)} … {_ms(high)} ms", va="center", fontsize=8, color=INK)
    axes.set_xscale("log")
    axes.set_xlim(0.5, axes.get_xlim()[1] * 40)
    axes.set_xlabel("ms, logarithmic", fontsize=8)


def _panel(axes: Any, name: str, entries: list[dict[str, Any]]) -> None:
    (_latencies if "ms" in entries[0]["answers"][0] else _rates)(axes, entries)
    axes.set_yticks(range(len(entries)), [entry["label"] for entry in entries], fontsize=8)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.set_title(TITLES.get(name, name) + _disturbed(entries), fontsize=10, loc="left", color=INK)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def main() -> None:
    """Draw every figure of which something was measured."""
    folder = Path(sys.argv[1])
    results = json.loads((folder / "results.json").read_text())
    # The same results make the same files.
    mpl.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none", "font.family": "sans-serif"})
    for figure, names in FIGURES.items():
        shown = {
            name: [entry for entry in results["scenarios"].get(name, ()) if entry["answers"]]
            for name in names
            if any(entry["answers"] for entry in results["scenarios"].get(name, ()))
        }
        if not shown:
            continue
        rows = [max(3, len(entries)) for entries in shown.values()]
        drawn, panels = pyplot.subplots(
            len(shown), 1, figsize=(8.5, 0.27 * sum(rows) + 0.85 * len(shown)), height_ratios=rows, squeeze=False
        )
        for axes, (name, entries) in zip(panels[:, 0], shown.items(), strict=True):
            _panel(axes, name, entries)
        drawn.tight_layout(h_pad=1.4)
        for ending, options in (("png", {"dpi": 130}), ("svg", {"metadata": {"Date": None}})):
            drawn.savefig(folder / f"{figure}.{ending}", facecolor="white", **options)
        pyplot.close(drawn)


if __name__ == "__main__":
    main()
