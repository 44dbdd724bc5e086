"""`doctor`: what is wrong with the tables and with what runs on them, what it costs, and what repairs it."""

from enum import StrEnum
from typing import Annotated

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit
from faststream_outbox._internal.cli.here import Here


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
    from faststream_outbox._internal.cli.views.findings import SEVERITIES, finding_blocks
    from faststream_outbox._internal.doctor.doctor import Doctor

    _ = here.overview
    place = here.place
    examining = Doctor(
        here.engine,
        table=place.table,
        dlq_table=place.dlq_table,
        log_tables=place.log_tables,
        inbox_table=place.inbox_table,
        timeout=here.timeout,
    )
    findings = await examining.examine()
    least = SEVERITIES.index(fail_on.value)
    is_wrong = any(SEVERITIES.index(each.severity) >= least for each in findings)
    return Answer(findings, finding_blocks(findings, everything=everything), Exit.WRONG if is_wrong else Exit.FINE)
