"""`python -m bench`: every scenario and every peer in one run, as ratios, with a report and plots.

Rounds are interleaved: each scenario asks all of its entries in turn, then again, beginning with another one. A run of
everything writes `docs/performance/results.json` and the plots beside it, and puts its tables into `bench/README.md`
and `docs/performance.md`; a run of a part (`--only drain`) leaves those alone, unless it is to `--update` them.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.arena import Arena, Neighbours
from bench.page import REPORT, rewrite
from bench.peer import ROOT, PeerFailed, peers
from bench.scenario import Answer, Found, Scenario, ask
from bench.scenarios import left_out, scenarios
from bench.table import facts_of, lines, targets
from bench.targets import CALM


def run(arena: Arena, scenario: Scenario, rounds: int, scale: float, patience: int = 0) -> list[Found]:
    """Ask every entry in turn, round after round."""
    results = [Found(entry) for entry in scenario.entries]
    for number in range(min(rounds, scenario.rounds or rounds)):
        # Nobody always comes right after the same other.
        turn = number % len(results)
        for found in results[turn:] + results[:turn]:
            if found.error:
                continue
            try:
                answers = [_asked(arena, found, scale)]
                while answers[-1] is not None and answers[-1]["neighbours"] > CALM and len(answers) <= patience:
                    answers.append(_asked(arena, found, scale))
            except (PeerFailed, RuntimeError) as error:
                found.error = str(error)
                print(f"{scenario.name}, {found.entry.label}: {error}", file=sys.stderr, flush=True)
                continue
            found.answers += sorted(filter(None, answers), key=lambda answer: float(answer["neighbours"]))[:1]
    return results


def _asked(arena: Arena, found: Found, scale: float) -> Answer | None:
    neighbours = Neighbours()
    answer = (found.entry.run or ask)(arena, found.entry, scale)
    return None if answer is None else answer | {"neighbours": neighbours.share(), "scale": scale}


def saved(results: dict[str, list[Found]]) -> dict[str, Any]:
    """All answers, as JSON can hold them."""
    return {
        name: [
            {"label": one.entry.label, "peer": one.entry.peer, "is_limit": one.entry.is_limit}
            | {"question": one.entry.question, "error": one.error, "answers": one.answers}
            for one in found
        ]
        for name, found in results.items()
    }


def main() -> None:
    """Run, print and write."""
    options = argparse.ArgumentParser(prog="bench")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    options.add_argument("--only", default="", help="parts of scenarios' names: drain,latency")
    options.add_argument("--patience", type=int, default=0, help="how often to repeat a round that others disturbed")
    options.add_argument("--update", action="store_true", help="put the parts that were run into the page")
    options.add_argument("--into", type=Path, help="where results and plots go")
    chosen = options.parse_args()
    if chosen.into is None:
        # A part of a run must not take the place of a whole one.
        chosen.into = ROOT / ".venv-bench" / "results" if chosen.only and not chosen.update else REPORT
    began, results = time.monotonic(), {}
    with Arena.open() as arena:
        for scenario in scenarios(chosen.only):
            started = time.monotonic()
            results[scenario.name] = run(arena, scenario, chosen.rounds, chosen.scale, chosen.patience)
            print("\n".join(lines(scenario, results[scenario.name])))
            print(f"({time.monotonic() - started:.0f} s)\n", flush=True)
        facts = arena.facts() | {
            "rounds": chosen.rounds,
            "scale": chosen.scale,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "left_out": left_out(chosen.only),
        }
    print("\n".join([*facts_of(facts), "", *targets(results)]))
    write(chosen.into, facts, saved(results), update=chosen.update)


def write(folder: Path, facts: dict[str, Any], found: dict[str, Any], *, update: bool) -> None:
    """Results, plots and page; with `update`, beside what an earlier run left."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    before = json.loads(path.read_text()) if update and path.exists() else {"scenarios": {}, "versions": {}}
    everything = facts | {
        "is_mixed": bool(before["scenarios"]),
        "scenarios": before["scenarios"] | found,
        "versions": before["versions"] | facts["versions"],
        "left_out": before.get("left_out", {}) | facts["left_out"],
    }
    path.write_text(json.dumps(everything, indent=1) + "\n")
    plots = peers()["plots"]
    subprocess.run([plots.python(), "-P", ROOT / "bench" / "plots.py", folder], check=True)
    if folder == REPORT:
        rewrite(everything)


if __name__ == "__main__":
    main()
