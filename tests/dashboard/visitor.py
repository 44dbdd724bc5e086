"""Somebody who visits a dashboard without a browser: pages, and forms with the token that the pages carry."""

import html
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
_FORM = re.compile(r'<form method="post" action="([^"]+)".*?>(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


class Visitor:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str = "/", **fields: Any) -> httpx.Response:
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
        token = await self.token()
        answer = await self.client.post(path, content=urlencode({"csrf": token, **fields}, doseq=True), headers=FORM)
        if follow and answer.status_code == 303:
            return await self.client.get(answer.headers["location"])
        return answer

    async def press(self, button: str, path: str, **typed: Any) -> str:
        """Send the form of a page that has this button, with its own fields and what was typed; the page after it."""
        called = re.compile(rf'(aria-label="|>){re.escape(button)}["<]')
        action, form = next(found for found in _FORM.findall(await self.page(path)) if called.search(found[1]))
        assert all(f'name="{name}"' in form for name in typed)
        fields = {name: html.unescape(value) for name, value in _HIDDEN.findall(form)}
        answer = await self.client.post(action, content=urlencode(fields | typed), headers=FORM)
        return (await self.client.get(answer.headers["location"])).text if answer.status_code == 303 else answer.text


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
