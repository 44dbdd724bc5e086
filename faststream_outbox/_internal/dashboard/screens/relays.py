"""The relays of the broker in this process, and whether those that they send to answer."""

from starlette.responses import Response

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.page import Page


async def show_relays(page: Page) -> Response:
    """Each relay with its lines."""
    broker = page.source.broker
    if broker is None:
        detail = "Relays are seen in the process that runs them: make the dashboard of its broker, not of an engine."
        raise Refused(404, "No broker here", detail)
    answer = await page.ask(broker.relay_status())
    return page.render("relays.html", answer=answer, relays=answer.value or ())
