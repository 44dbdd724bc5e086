"""What the doctor has found, the worst first."""

from collections.abc import Sequence

from faststream_outbox._internal.cli.blocks import Block, Grid, Marked, Quoted, Said
from faststream_outbox._internal.cli.shown import counted
from faststream_outbox._internal.cli.views.queues import MARKS
from faststream_outbox._internal.doctor.finding import Finding

SEVERITIES = ("ok", "notice", "warning", "critical")


def finding_blocks(findings: Sequence[Finding], *, everything: bool) -> list[Block]:
    """Each finding with its cost and its repair; those that are fine are counted, or listed."""
    ordered = sorted(findings, key=lambda each: -SEVERITIES.index(each.severity))
    wrong = [each for each in ordered if each.severity != "ok"]
    fine = [each for each in ordered if each.severity == "ok"]
    blocks = [block for each in wrong for block in _finding(each)]
    if everything and fine:
        rows = [(Marked("ok", "good"), each.check, each.title) for each in fine]
        blocks.append(Grid(("", "check", "what"), rows))
    else:
        found = "found nothing wrong" if wrong else "found nothing wrong: all is well"
        blocks.append(Said(f"{counted(len(fine), 'check')} {found}.", "good"))
    return blocks


def _finding(finding: Finding) -> list[Block]:
    blocks: list[Block] = [
        Grid(("", "check", "what"), [(Marked(finding.severity, MARKS[finding.severity]), finding.check, finding.title)])
    ]
    if finding.detail:
        blocks.append(Said(finding.detail))
    if finding.cost:
        blocks.append(Said(f"Cost: {finding.cost}"))
    if finding.repair:
        blocks.append(Quoted(finding.repair, "Repair:"))
    return blocks
