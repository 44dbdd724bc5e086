"""Processes that are connected: what they do, what they hold, since when."""

from starlette.responses import Response

from faststream_outbox._internal.dashboard.page import Page


async def show_workers(page: Page) -> Response:
    """Every process that the server knows a connection of."""
    answer = await page.ask(page.source.overview.processes())
    processes = answer.value or ()
    return page.render(
        "workers.html",
        answer=answer,
        processes=processes,
        # A process may have several clients, each with a worker id and a line of its own.
        count=len({(process.host, process.pid) for process in processes}),
        hosts=len({process.host for process in processes}),
        leases=sum(process.leases for process in processes),
    )
