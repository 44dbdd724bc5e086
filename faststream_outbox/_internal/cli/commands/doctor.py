"""`doctor`: what is wrong with the tables and with what runs on them, what it costs, and what repairs it.

The worst comes first. Added to the application by `app`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands.status import MARKS
from faststream_outbox._internal.cli.exits import Answer, Block, Exit, Grid, Marked, Quoted, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.doctor.finding import Finding
from faststream_outbox._internal.text import counted


class FailOn(StrEnum):
    """From which severity on the exit code is 1."""

    NOTICE = "notice"
    WARNING = "warning"
    CRITICAL = "critical"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(doctor)


async def doctor(
    here: Here,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = FailOn.CRITICAL,
    everything: Annotated[bool, typer.Option("--all", help="Also the checks that found nothing.")] = False,
) -> Answer:
    """Check everything that can be checked from here, and say how to repair what is wrong."""
    _ = here.overview
    findings = await here.doctor().examine()
    least = SEVERITIES.index(fail_on.value)
    is_wrong = any(SEVERITIES.index(each.severity) >= least for each in findings)
    return Answer(findings, finding_blocks(findings, everything=everything), Exit.WRONG if is_wrong else Exit.FINE)


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
