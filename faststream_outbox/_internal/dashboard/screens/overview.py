"""The first screen, the doctor's findings, and relays.

What is wrong, how much waits and how long, what comes and goes, over the last hour. What the doctor finds in the
database, the worst first, with commands that repair it. The relays of the broker in this process, and whether those
that they send to answer. Called through the tables of `screens`.
"""

from starlette.responses import JSONResponse, Response

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Page
from faststream_outbox._internal.doctor.finding import SEVERITIES

MOST_SHOWN = 8


async def show_overview(page: Page) -> Response:
    """Everything at a glance."""
    monitor = page.house.monitor
    sample = await monitor.sample()
    late = page.house.options.late_after
    queues = sorted(sample.queues, key=lambda queue: (-queue.oldest_ready_seconds, -queue.ready, queue.queue))
    groups = sorted(sample.groups, key=lambda group: (-group.seconds, -group.messages, group.group))
    broker = page.source.broker
    return page.render(
        "overview.html",
        sample=sample,
        problems=[
            finding
            for finding in monitor.findings
            # What is late is said by the numbers of now already.
            if finding.severity in ("warning", "critical") and finding.check != "ready"
        ],
        examined_at=monitor.examined_at,
        down=[relay for relay in broker.relays if relay.is_degraded] if broker is not None else [],
        late=[queue for queue in queues if queue.oldest_ready_seconds >= late and not queue.is_paused],
        paused=[queue for queue in queues if queue.is_paused],
        queues=queues[:MOST_SHOWN],
        groups=groups[:MOST_SHOWN],
        more_queues=max(0, len(queues) - MOST_SHOWN),
        more_groups=max(0, len(groups) - MOST_SHOWN),
        rates=monitor.history.rates(),
        history=monitor.history,
        ready=sum(queue.ready for queue in queues),
        leased=sum(queue.leased for queue in queues),
        scheduled=sum(queue.scheduled for queue in queues),
        dead=sum(queue.dead for queue in queues),
        oldest=max((queue.oldest_ready_seconds for queue in queues if not queue.is_paused), default=0.0),
        lag=sum(group.messages for group in groups),
        lag_seconds=max((group.seconds for group in groups if group.paused_since is None), default=0.0),
        is_estimate=any(queue.is_estimate for queue in queues),
        is_lag_estimate=any(group.is_estimate for group in groups),
    )


async def history(page: Page) -> Response:
    """The columns of the charts."""
    return JSONResponse(page.house.monitor.history.series())


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


async def show_relays(page: Page) -> Response:
    """Each relay with its lines."""
    broker = page.source.broker
    if broker is None:
        detail = "Relays are seen in the process that runs them: make the dashboard of its broker, not of an engine."
        raise Refused(404, "No broker here", detail)
    answer = await page.ask(broker.relay_status())
    return page.render("relays.html", answer=answer, relays=answer.value or ())
