"""The dashboard of the demo's shop, in the demo's own process, for as long as the shop stays open."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from sqlalchemy.ext.asyncio import AsyncEngine

from examples.demo.customers import free_port
from examples.demo.until import until
from examples.shop.models import inbox_table, log_tables, outbox, outbox_dlq
from faststream_outbox.dashboard import address_of, make_dashboard


class Server(uvicorn.Server):
    """A server that leaves Ctrl-C to the demo."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured."""
        yield


@asynccontextmanager
async def dashboard_of(engine: AsyncEngine) -> AsyncGenerator[str]:
    """The address to open, which works once, while the block runs."""
    dashboard = make_dashboard(
        engine,
        table=outbox,
        dlq_table=outbox_dlq,
        log_tables=log_tables,
        inbox_table=inbox_table,
        title="The shop",
    )
    port = free_port()
    server = Server(uvicorn.Config(dashboard, host="127.0.0.1", port=port, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())

    async def is_up() -> bool:
        return server.started or serving.done()

    await until(is_up)
    try:
        yield address_of(dashboard, "127.0.0.1", port)
    finally:
        server.should_exit = True
        await serving
