"""What the doctor finds in the database, the worst first, with commands that repair it."""

from starlette.responses import Response

from faststream_outbox._internal.dashboard.page import Page
from faststream_outbox._internal.doctor.finding import SEVERITIES

AGAIN = 2.0
"""Seconds after which "examine again" does."""


async def show_health(page: Page) -> Response:
    """All findings, or those of one severity."""
    monitor = page.house.monitor
    findings = await monitor.checkup(**({"max_age": AGAIN} if page.query("again") else {}))
    ordered = sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity))
    return page.render(
        "health.html",
        findings=[finding for finding in ordered if finding.severity != "ok"],
        fine=[finding for finding in ordered if finding.severity == "ok"],
        examined_at=monitor.examined_at,
        problem=monitor.checkup_problem,
    )
