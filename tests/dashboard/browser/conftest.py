"""A real Chromium and a dashboard behind a real port."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.chromium import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest.fixture
async def browser() -> "AsyncIterator[Browser]":
    """Chromium without a window; nothing is kept of it."""
    program = chromium()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        opened: Any = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        await opened.close()
