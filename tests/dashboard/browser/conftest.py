"""A real Chromium and a dashboard behind a real port."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.dashboard.browser.tab import Tab, opened
from tests.dashboard.place import Place
from tests.dashboard.served import served
from tests.servers.chromium import chromium


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    """Chromium without a window; nothing is kept of it."""
    program = chromium()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        launched: Any = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest.fixture
async def tab(browser: Any, place: Place) -> AsyncIterator[Tab]:
    """A tab on a dashboard with one of everything, which has nothing to complain about in the end."""
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        yield tab
        assert tab.complaints == []
