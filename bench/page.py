"""The pages of results, `bench/README.md` and `docs/performance.md`: written by hand but for what is between marks.

`<!-- begin: run -->` … `<!-- end: run -->`, and the same for `targets`, `results` and `expected`, are replaced by a run
of everything, `profile` by `python -m bench.profile --write`; `python -m bench.page` does it again from
`docs/performance/results.json`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.expected import expected
from bench.peer import ROOT
from bench.scenario import Found, Scenario
from bench.scenarios import SCENARIOS
from bench.table import facts_of, lines, targets

PAGE = ROOT / "bench" / "README.md"
USERS_PAGE = ROOT / "docs" / "performance.md"
REPORT = ROOT / "docs" / "performance"


def loaded(saved: Mapping[str, Any]) -> tuple[list[Scenario], dict[str, list[Found]]]:
    """Scenarios and results as they were when the run had ended."""
    shown = [scenario for scenario in SCENARIOS if scenario.name in saved["scenarios"]]
    results: dict[str, list[Found]] = {}
    for scenario in shown:
        entries = {entry.label: entry for entry in scenario.entries}
        results[scenario.name] = [
            Found(entries[one["label"]], one["answers"], one["error"])
            for one in saved["scenarios"][scenario.name]
            if one["label"] in entries
        ]
    return shown, results


def rewrite(saved: Mapping[str, Any]) -> None:
    """Put a run's numbers into the pages."""
    shown, results = loaded(saved)
    put(PAGE, "run", facts_of(dict(saved)))
    put(PAGE, "targets", targets(results))
    put(PAGE, "results", [line for scenario in shown for line in lines(scenario, results[scenario.name])])
    put(USERS_PAGE, "expected", expected(results))


def put(page: Path, name: str, content: Sequence[str]) -> None:
    """Replace what stands between the marks of this name on a page."""
    before, begin, rest = page.read_text().partition(f"<!-- begin: {name} -->\n")
    _, end, after = rest.partition(f"<!-- end: {name} -->")
    if end:
        body = "\n".join(content).strip()
        page.write_text(f"{before}{begin}\n{body}\n\n{end}{after}")


if __name__ == "__main__":
    rewrite(json.loads((REPORT / "results.json").read_text()))
