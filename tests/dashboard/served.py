"""A dashboard behind a real server and a real port, in the event loop of the test."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:
    """The address of an application that is served while the block runs."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
            if running.done():
                await running
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listening.close()
