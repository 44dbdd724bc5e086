"""A tab of the browser that hears every complaint."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlencode

WIDE, NARROW = (1440, 900), (360, 780)
PATIENCE_MS = 30_000


class Tab:
    """A page, and what the browser had to complain about."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.set_default_timeout(PATIENCE_MS)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    async def open(self, path: str = "/", **fields: object) -> None:
        """Go to a screen."""
        await self.page.goto(self.base + path + (f"?{urlencode(fields)}" if fields else ""))

    async def sees(self, words: str) -> None:
        """Wait until the words can be read."""
        await self.page.get_by_text(words).first.wait_for()

    async def press(self, name: str) -> None:
        """Click a button or a link by what it is called."""
        button = self.page.get_by_role("button", name=name, exact=True)
        target = button if await button.count() else self.page.get_by_role("link", name=name, exact=True)
        await target.first.click()

    async def measure(self, script: str) -> Any:
        """What a script finds on the page."""
        return await self.page.evaluate(script)


@contextlib.asynccontextmanager
async def opened(browser: Any, base: str, size: tuple[int, int] = WIDE, **options: Any) -> AsyncGenerator[Tab]:
    """A tab of its own, without the cookies of others."""
    context = await browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    try:
        yield Tab(await context.new_page(), base)
    finally:
        await context.close()
