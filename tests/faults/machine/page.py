"""The tables of docs/reliability.md, from the reports in docs/reliability: `python -m tests.faults.machine.page`.

The page is written by hand but for what is between marks, `<!-- begin: runs -->` … `<!-- end: runs -->`. A report is
the JSON that a run of the machine writes (`make soak MINUTES=60 SEED=1`); `recovery.json` is what `recovery` measured.
`tests/docs/test_named_tests.py` holds the page and the reports together.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reliability.md"
REPORTS = ROOT / "docs" / "reliability"
BEGIN, END = "<!-- begin: runs -->\n", "<!-- end: runs -->"
RECOVERY = "recovery"
NONE_YET = "There is no report yet: nobody has put one into `docs/reliability`."

Report = Mapping[str, Any]


def reports(folder: Path = REPORTS) -> dict[str, Any]:
    """Every report by the name of its file."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def tables(found: Mapping[str, Any]) -> list[str]:
    """What stands between the marks."""
    runs: list[Report] = [report for name, report in found.items() if name != RECOVERY]
    runs.sort(key=lambda report: (-report["minutes"], report["seed"]))
    lines = [*_runs(runs), "", *_broken(runs), "", *_faults(runs), "", *_memory(runs[0])] if runs else [NONE_YET]
    return [*lines, *(["", *_recovery(found[RECOVERY])] if RECOVERY in found else [])]


def rewritten(page: str, found: Mapping[str, Any]) -> str:
    """The page with these reports."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"{PAGE} has no place for the runs."
        raise ValueError(msg)
    return "\n".join([f"{before}{begin}", *tables(found), "", f"{end}{after}"])


def _runs(runs: Sequence[Report]) -> list[str]:
    lines = [
        "| seed | minutes | messages | handlers run | effects | dead letters | faults | taken over: leases, spans |"
        " promises broken |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        counts = [run["committed"], run["runs"], run["effects"], run["dead letters"], sum(run["faults"].values())]
        taken = f"{run['leases taken over']:,}, {run['spans taken over']:,}"
        cells = [str(run["seed"]), f"{run['minutes']:g}", *(f"{count:,}" for count in counts), taken]
        lines.append(_row([*cells, str(sum(run["wrong"].values()))]))
    return lines


def _broken(runs: Sequence[Report]) -> list[str]:
    kinds = dict.fromkeys(kind for run in runs for kind in run["wrong"])
    rows = [_row([kind, str(sum(run["wrong"].get(kind, 0) for run in runs))]) for kind in kinds]
    return ["| promise | broken in all runs |", "|---|---|", *rows]


def _faults(runs: Sequence[Report]) -> list[str]:
    times = Counter[str]()
    for run in runs:
        times.update(run["faults"])
    rows = [_row([kind, f"{times[kind]:,}"]) for kind in sorted(times)]
    left = sorted({f"{kind} ({why})" for run in runs for kind, why in run["faults left out"].items()})
    said = ["", f"Left out in some runs, where it was not possible: {'; '.join(left)}."] if left else []
    return ["| fault | times in all runs |", "|---|---|", *rows, *said]


def _memory(longest: Report) -> list[str]:
    rows = [_row([role, str(first), str(last)]) for role, (first, last) in sorted(longest["memory"].items())]
    head = "| role, in the longest run | megabytes of a process, first third of its life | last third |"
    return [head, "|---|---|---|", *rows]


def _recovery(found: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        _row([one["fault"], one["driver"], str(one["tries"]), f"{one['half within ms']:,}", f"{one['longest ms']:,}"])
        for one in found
    ]
    return [
        "| until the next delivery after | driver | tries | half within, ms | longest, ms |",
        "|---|---|---|---|---|",
        *rows,
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), reports()), encoding="utf-8")


if __name__ == "__main__":
    main()
