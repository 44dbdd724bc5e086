"""What a check found: how bad it is, what it costs, and the commands that repair it.

Made by every check of the doctor; shown by the command line and the dashboard.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

JSON: TypeAlias = "str | int | float | bool | Sequence[JSON] | Mapping[str, JSON] | None"
Severity = Literal["ok", "notice", "warning", "critical"]

SEVERITIES: tuple[Severity, ...] = ("ok", "notice", "warning", "critical")
"""From good to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check about one thing; a check that finds nothing wrong answers once, with "ok"."""

    check: str
    """The name of the check, as in the documentation's table."""
    severity: Severity
    """"ok": nothing to do. "notice": worth knowing. "warning": it costs something now. "critical": messages wait or may
    be lost."""
    title: str
    """One line without a full stop."""
    detail: str
    """What was seen, and why it is so; may have several lines. Empty where the title says all."""
    cost: str
    """What it costs, in one sentence; empty where it costs nothing."""
    repair: str | None
    """The commands that repair it, ready to be pasted: SQL, unless the first line begins with `# Python` or `# shell`.
    None if it is left to you, and then the detail says what to do."""
    facts: Mapping[str, JSON] = field(default_factory=dict[str, "JSON"])
    """The numbers and names behind it, for programs."""


def worst(findings: Sequence[Finding]) -> Severity:
    """The worst severity among them; "ok" if there are none."""
    found = {finding.severity for finding in findings}
    for severity in reversed(SEVERITIES):
        if severity in found:
            return severity
    return "ok"
