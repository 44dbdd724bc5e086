"""Somebody who visits a dashboard without a browser: pages, and forms with the token that the pages carry."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx

from faststream_outbox.dashboard import Dashboard

BASE = "http://localhost:8710"
FORM = {"content-type": "application/x-www-form-urlencoded", "origin": BASE}
_TOKEN = re.compile(r'name="csrf" value="([\w-]+)"')


class Visitor:
    """A client with its cookies."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str = "/", **fields: Any) -> httpx.Response:
        """A page."""
        return await self.client.get(path + (f"?{urlencode(fields)}" if fields else ""))

    async def page(self, path: str = "/", **fields: Any) -> str:
        """The text of a page that must be there."""
        answer = await self.get(path, **fields)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[-2000:])
        return answer.text

    async def token(self) -> str:
        """What forms carry."""
        text = await self.page("/queues")
        found = _TOKEN.search(text)
        if found is not None:
            return found[1]
        return next(value for name, value in self.client.cookies.items() if name.startswith("outbox_csrf"))

    async def post(self, path: str, *, follow: bool = True, **fields: Any) -> httpx.Response:
        """A form of a page."""
        token = await self.token()
        answer = await self.client.post(path, content=urlencode({"csrf": token, **fields}, doseq=True), headers=FORM)
        if follow and answer.status_code == 303:
            return await self.client.get(answer.headers["location"])
        return answer


@asynccontextmanager
async def visiting(
    dashboard: Dashboard, *, client: str = "127.0.0.1", headers: dict[str, str] | None = None, base: str = BASE
) -> AsyncIterator[Visitor]:
    """A visitor of a dashboard, which is closed at the end."""
    transport = httpx.ASGITransport(dashboard, client=(client, 5000))
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as opened:
        try:
            yield Visitor(opened)
        finally:
            await dashboard.close()
