"""Every screen in a real browser: drawn without complaint, at both sizes and in both schemes, and escaped."""

from dataclasses import fields
from typing import Any
from urllib.parse import quote

import pytest

from tests.dashboard.browser.tab import NARROW, WIDE, Tab, opened
from tests.dashboard.place import Place, Words
from tests.dashboard.promises.test_screens import ODD, SCRIPT, every_page
from tests.dashboard.served import served

pytestmark = pytest.mark.slow

# What a screen reader would say of something that can be pressed or filled in.
NAMELESS = """() => [...document.querySelectorAll('a, button, input:not([type=hidden]), select')].filter(element =>
    element.checkVisibility() && !(element.getAttribute('aria-label') || element.textContent.trim() ||
    (element.labels && element.labels.length && element.labels[0].textContent.trim())))
    .map(element => element.outerHTML)"""
TWICE = """() => { const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
    return ids.filter((id, place) => ids.indexOf(id) !== place); }"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
HEADINGS = "() => [...document.querySelectorAll('h1')].map(element => element.textContent.trim())"


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light"),
        pytest.param(NARROW, "dark", id="narrow-dark"),
        pytest.param(WIDE, "dark", marks=pytest.mark.soak, id="wide-dark"),
        pytest.param(NARROW, "light", marks=pytest.mark.soak, id="narrow-light"),
    ],
)
async def test_every_screen_is_drawn(browser: Any, place: Place, size: tuple[int, int], scheme: str) -> None:
    async with served(place.dashboard()) as base, opened(browser, base, size, color_scheme=scheme) as tab:
        for path, given in every_page(place):
            if path == "/history":
                continue
            await tab.open(path, **given)
            assert await tab.measure(OVERFLOW) <= 0, f"{path} is wider than the screen"
            assert await tab.measure(NAMELESS) == [], path
            assert await tab.measure(TWICE) == [], path
            (heading,) = await tab.measure(HEADINGS)
            assert heading, path
        assert tab.complaints == []


async def test_markup_of_strangers_is_text(browser: Any, empty: Place) -> None:
    for evil in (ODD, SCRIPT):
        short = {"queue": evil[:250], "uri": f"x/{quote(evil[:60], safe='')}"}
        await empty.fill(Words(**{each.name: short.get(each.name, evil) for each in fields(Words)}))
    async with served(empty.dashboard()) as base, opened(browser, base) as tab:
        for path, given in every_page(empty):
            if path != "/history":
                await tab.open(path, **given)
                assert await tab.measure("() => document.querySelectorAll('main img, main script').length") == 0, path
        await tab.open("/queues")
        await tab.sees("<script>alert(1)</script>")
        assert tab.complaints == []


async def test_charts_are_drawn_in_the_colours_of_the_page(tab: Tab) -> None:
    await tab.open("/")
    await tab.page.locator("#charts[data-points]").wait_for()
    assert await tab.page.locator(".chart canvas").count() == 4
    await tab.page.keyboard.press("c")
    await tab.page.locator("html[data-theme=light]").wait_for()
    assert await tab.page.locator(".chart canvas").count() == 4


async def test_screens_can_be_read_without_scripts(browser: Any, place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base, java_script_enabled=False) as tab:
        await tab.open("/queues")
        await tab.press("Pause orders")
        await tab.sees("orders is paused.")
    assert await place.paused() == ["orders"]
