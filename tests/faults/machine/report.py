"""The report of a run: JSON for programs, Markdown for people. Pure; written by `__main__`."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.machine.checks.ends import growth, lives
from tests.faults.machine.facts import Facts
from tests.faults.machine.healing import recoveries
from tests.faults.machine.history import COMMITTED, DIED, MISSED, ROLLED_BACK, UNCERTAIN
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import OF_SOUGHT_GROUP
from tests.faults.machine.wrong import Wrong

GROUPED = {
    "atomic": ("commit lost", "rollback kept", "not published", "published twice", "ghost"),
    "lost": ("lost", "left", "stuck"),
    "doubles": ("lease stolen", "settled by a stranger", "key abreast", "not renewed", "twice at once", "span stolen",
                "cursor moved back", "cursor moved by a stranger"),
    "order": ("out of order",),
    "effects": ("effect doubled", "effect and dead", "effect torn", "dead twice"),
    "timers": ("timer early",),
    "dead letters": ("dead letter incomplete", "healthy message died"),
    "ends": ("lease left", "connection left", "files left", "tasks left", "bad end", "died"),
    "memory": ("memory grew",),
    "the machine itself": ("not judged",),
}  # fmt: skip
"""Kinds of wrong by the promise that they break."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came out of one run."""

    seed: int
    minutes: float
    story: Story
    facts: Facts
    wrongs: Sequence[Wrong]
    skipped: dict[str, str]

    @property
    def summary(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        said = Counter(kind for kind, _ in self.story.told.values())
        kinds = Counter(wrong.kind for wrong in self.wrongs)
        found = {name: sum(kinds[kind] for kind in of) for name, of in GROUPED.items()}
        seen = [effect.id for effect in self.facts.effects if effect.place == OF_SOUGHT_GROUP]
        known = {kind for of in GROUPED.values() for kind in of}
        return {
            "seed": self.seed,
            "minutes": self.minutes,
            "messages": dict(sorted(Counter(row.place for row in self.facts.business).items())),
            "committed": len(self.facts.business),
            "transactions said": {kind: said[kind] for kind in (COMMITTED, UNCERTAIN, ROLLED_BACK)},
            "runs": len(self.story.runs),
            "effects": len(self.facts.effects),
            "dead letters": len(self.facts.letters),
            "seeks": len(self.facts.seeks),
            "seen again": len(seen) - len(set(seen)),
            "dead letters replayed": sum(row.times - 1 for row in self.facts.arrivals),
            "leases taken over": sum(
                1
                for change in self.facts.leases
                if change.old_token and change.new_token not in (None, change.old_token)
            ),
            "spans taken over": sum(
                1 for span in self.facts.spans if span.old_owner and span.new_owner not in (None, span.old_owner)
            ),
            "deaths": sum(1 for event in self.story.events if event.kind == DIED),
            "faults": dict(sorted(Counter(fault.kind for fault in self.story.faults).items())),
            "faults left out": self.skipped,
            "faults missed": dict(
                sorted(Counter(event.data["fault"] for event in self.story.events if event.kind == MISSED).items())
            ),
            "wrong": found | {kind: count for kind, count in kinds.items() if kind not in known},
            "wrongs": [str(wrong) for wrong in self.wrongs[:200]],
            "memory": self._memory(),
            "recovery": {
                each.kind: {
                    "count": each.count,
                    "seconds": {
                        role: {"p50": round(each.half(role) or 0.0, 3), "max": round(each.longest(role) or 0.0, 3)}
                        for role in sorted(each.seconds)
                    },
                }
                for each in recoveries(self.story)
            },
        }

    def _memory(self) -> dict[str, list[int]]:
        """Megabytes in the first and in the last third of the longest life of each role."""
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for events in self.story.by_pid.values():
            for life in lives(events):
                if (sizes := growth(life)) is not None:
                    found[life[0].role].append(sizes)
        return {role: [round(max(each) / 1024) for each in zip(*sizes, strict=True)] for role, sizes in found.items()}

    def markdown(self) -> str:
        """Tables for people."""
        summary = self.summary
        lines = [
            f"# A run of the machine: seed {self.seed}, {self.minutes:g} minutes",
            "",
            f"{summary['committed']} messages committed, {summary['runs']} runs of handlers,"
            f" {summary['effects']} effects, {summary['dead letters']} dead letters;"
            f" {summary['seeks']} seeks, after which {summary['seen again']} messages came again;"
            f" {summary['dead letters replayed']} dead letters replayed;"
            f" {summary['leases taken over']} leases and"
            f" {summary['spans taken over']} spans taken over; {summary['deaths']} processes died by themselves.",
            "",
            "| broken promises | number |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in summary["wrong"].items()),
            "",
            "| fault | times | back to work, p50 / max seconds by role |",
            "|---|---|---|",
        ]
        for kind, found in summary["recovery"].items():
            roles = ", ".join(f"{role} {each['p50']:g} / {each['max']:g}" for role, each in found["seconds"].items())
            lines.append(f"| {kind} | {found['count']} | {roles} |")
        if summary["faults missed"]:
            missed = ", ".join(f"{kind} {count}" for kind, count in summary["faults missed"].items())
            lines += ["", f"Could not strike, some times: {missed}."]
        lines += ["", "| role | megabytes, first third | last third |", "|---|---|---|"]
        lines += [f"| {role} | {first} | {last} |" for role, (first, last) in sorted(summary["memory"].items())]
        if self.wrongs:
            lines += ["", "## Wrong", "", "```text", *map(str, self.wrongs[:50]), "```"]
        return "\n".join(lines) + "\n"


def _changed(old: str | None, new: str | None) -> bool:
    """Whether a lease went from one holder to another."""
    return old is not None and new not in (None, old)
