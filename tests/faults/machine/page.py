"""The tables of docs/reliability.md, from the reports in docs/reliability: `python -m tests.faults.machine.page`.

The page is written by hand but for what is between marks, `<!-- begin: runs -->` … `<!-- end: runs -->`. A report is
the JSON that a run of the machine writes (`make soak MINUTES=60 SEED=1`). `tests/docs/test_reliability_page.py` holds
the page and the reports together.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reliability.md"
REPORTS = ROOT / "docs" / "reliability"
BEGIN, END = "<!-- begin: runs -->\n", "<!-- end: runs -->"
NONE_YET = "There is no report yet: nobody has put one into `docs/reliability`."

Report = Mapping[str, Any]


def reports(folder: Path = REPORTS) -> dict[str, Report]:
    """Every report by the name of its file."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def tables(found: Mapping[str, Report]) -> list[str]:
    """What stands between the marks."""
    if not found:
        return [NONE_YET]
    return [*_runs(found), "", *_broken(found), "", *_faults(found), *_left_out(found)]


def rewritten(page: str, found: Mapping[str, Report]) -> str:
    """The page with these reports."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"{PAGE} has no place for the runs."
        raise ValueError(msg)
    return "\n".join([f"{before}{begin}", *tables(found), "", f"{end}{after}"])


def _runs(found: Mapping[str, Report]) -> list[str]:
    lines = [
        "| run | minutes | seed | messages committed | handlers run | faults | leases taken over | promises broken |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, report in found.items():
        faults = sum(report["faults"].values())
        cells = [name, f"{report['minutes']:g}", str(report["seed"]), f"{report['committed']:,}"]
        cells += [f"{report['runs']:,}", f"{faults:,}", f"{report['leases taken over']:,}", str(_wrongs(report))]
        lines.append(_row(cells))
    return lines


def _broken(found: Mapping[str, Report]) -> list[str]:
    kinds = list(dict.fromkeys(kind for report in found.values() for kind in report["wrong"]))
    lines = [_row(["broken promises", *found]), _row(["---"] * (len(found) + 1), space="")]
    return [
        *lines,
        *(_row([kind, *(str(report["wrong"].get(kind, 0)) for report in found.values())]) for kind in kinds),
    ]


def _faults(found: Mapping[str, Report]) -> list[str]:
    times: defaultdict[str, int] = defaultdict(int)
    longest: defaultdict[str, float] = defaultdict(float)
    halves: defaultdict[str, list[float]] = defaultdict(list)
    for report in found.values():
        for kind, count in report["faults"].items():
            times[kind] += count
        for kind, recovery in report["recovery"].items():
            for seconds in recovery["seconds"].values():
                longest[kind] = max(longest[kind], seconds["max"])
                halves[kind].append(seconds["p50"])
    lines = [
        "| fault | times | half of the time a role worked again within | at the longest |",
        "|---|---|---|---|",
    ]
    for kind in sorted(times):
        half = f"{max(halves[kind]):.1f} s" if halves[kind] else ""
        most = f"{longest[kind]:.1f} s" if halves[kind] else ""
        lines.append(_row([kind, f"{times[kind]:,}", half, most]))
    return lines


def _left_out(found: Mapping[str, Report]) -> list[str]:
    left = sorted({f"{kind} ({why})" for report in found.values() for kind, why in report["faults left out"].items()})
    return ["", f"Left out, where it was not possible: {'; '.join(left)}."] if left else []


def _wrongs(report: Report) -> int:
    return sum(report["wrong"].values())


def _row(cells: Sequence[str], space: str = " ") -> str:
    return f"|{space}" + f"{space}|{space}".join(cells) + f"{space}|"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), reports()), encoding="utf-8")


if __name__ == "__main__":
    main()
