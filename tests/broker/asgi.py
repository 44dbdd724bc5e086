"""An ASGI application with its lifespan, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Starts the application as a server would, gives a client for it, and stops it again."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan", "asgi": {}, "state": {}}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    await _completed("startup", from_app, life)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield client
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await _completed("shutdown", from_app, life)
        await life


async def _completed(stage: str, from_app: asyncio.Queue[dict[str, Any]], life: asyncio.Task[None]) -> None:
    said = asyncio.ensure_future(from_app.get())
    await asyncio.wait([said, life], return_when=asyncio.FIRST_COMPLETED)
    if not said.done():
        said.cancel()
        life.result()
    message = await said
    assert message["type"] == f"lifespan.{stage}.complete", message
