"""By keyboard, refreshing by itself, colours, copying: what the scripts do."""

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import publish
from tests.dashboard.browser.tab import NARROW, Tab, opened
from tests.dashboard.place import Place
from tests.dashboard.served import served

pytestmark = pytest.mark.slow

FOCUSED = "() => document.activeElement.textContent.trim() || document.activeElement.id"
OUTLINE = (
    "() => { const look = getComputedStyle(document.activeElement); return look.outlineStyle + look.outlineWidth; }"
)


async def test_everything_is_reached_by_keys(tab: Tab) -> None:
    await tab.open("/")
    keyboard = tab.page.keyboard
    await keyboard.press("Tab")
    assert await tab.measure(FOCUSED) == "Skip to the content"
    assert await tab.measure(OUTLINE) == "solid2px"
    await keyboard.press("Enter")
    assert await tab.measure("() => document.activeElement.id") == "content"
    await keyboard.press("?")
    await tab.page.locator("dialog[open]").wait_for()
    await keyboard.press("Escape")
    await tab.page.locator("dialog[open]").wait_for(state="hidden")
    await keyboard.press("/")
    assert await tab.measure("() => document.activeElement.id") == "find"
    await keyboard.press("Escape")
    for key, heading in (("q", "Queues"), ("f", "Failures"), ("t", "Timers"), ("g", "Groups"), ("d", "Database")):
        await keyboard.press("g")
        await keyboard.press(key)
        await tab.page.get_by_role("heading", level=1, name=heading).wait_for()
    await keyboard.press("g")
    await keyboard.press("q")
    await tab.page.get_by_role("heading", level=1, name="Queues").wait_for()
    await keyboard.press("j")
    assert await tab.measure(FOCUSED) == "orders"
    await keyboard.press("Enter")
    await tab.page.get_by_role("heading", level=1, name="orders").wait_for()


async def test_rows_are_selected_by_keys(tab: Tab, place: Place) -> None:
    await place.die(2)
    await tab.open("/failures")
    await tab.page.locator("#letters a.row").first.focus()
    await tab.page.keyboard.press("x")
    assert await tab.page.locator("#letters input[name=id]:checked").count() == 1
    await tab.page.get_by_role("button", name="Replay selected…").click()
    await tab.sees("Replay 1 dead letter")


async def test_page_refreshes_by_itself_and_keeps_the_focus(tab: Tab, place: Place) -> None:
    await tab.page.clock.install()
    await tab.open("/queues")
    await tab.page.keyboard.press("j")
    async with AsyncSession(place.engine) as session, session.begin():
        await publish(session, place.table, Envelope(queue="parcels", body=b"1"))
    link = tab.page.get_by_role("link", name="parcels", exact=True)
    for _ in range(60):
        await tab.page.clock.run_for(5_000)
        if await link.count():
            break
    await link.wait_for()
    assert await tab.measure(FOCUSED) == "orders"
    assert await tab.page.locator("#live-text").text_content() == "Live"


async def test_nothing_is_asked_while_nobody_looks(tab: Tab) -> None:
    await tab.page.clock.install()
    await tab.open("/")
    await tab.page.locator("#charts[data-points]").wait_for()
    asked: list[str] = []
    await tab.measure("() => Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})")
    tab.page.on("request", lambda request: asked.append(request.url))
    await tab.page.clock.run_for(60_000)
    assert asked == []
    await tab.measure("() => Object.defineProperty(document, 'hidden', {get: () => false, configurable: true})")
    async with tab.page.expect_request(lambda request: request.url.rstrip("/") == tab.base):
        await tab.measure("() => document.dispatchEvent(new Event('visibilitychange'))")


async def test_refreshing_is_paused_by_a_key(tab: Tab) -> None:
    await tab.page.clock.install()
    await tab.open("/queues")
    await tab.page.keyboard.press("p")
    await tab.page.locator("#live-text", has_text="Paused").wait_for()
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    await tab.page.clock.run_for(60_000)
    assert asked == []


async def test_colours_are_remembered(browser: Any, place: Place) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    async with served(place.dashboard()) as base, opened(browser, base, color_scheme="light") as tab:
        await tab.open("/")
        assert await tab.measure(ground) == "rgb(255, 255, 255)"
        await tab.page.keyboard.press("c")
        await tab.page.keyboard.press("c")
        assert await tab.measure(ground) == "rgb(16, 17, 19)"
        await tab.open("/queues")
        assert await tab.measure(ground) == "rgb(16, 17, 19)"


async def test_body_is_copied(browser: Any, place: Place) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    async with served(place.dashboard()) as base, opened(browser, base, permissions=permissions) as tab:
        await tab.open("/message", letter=place.letter_id)
        await tab.page.locator("[data-copy=body]").click()
        await tab.page.locator("[data-copy=body]", has_text="Copied").wait_for()
        assert '"item": "a chair"' in await tab.measure("() => navigator.clipboard.readText()")


async def test_rows_are_cards_on_a_narrow_screen(browser: Any, place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base, NARROW) as tab:
        await tab.open("/queues")
        assert await tab.page.locator("td[data-label=Ready]").first.is_visible()
        assert await tab.measure("() => getComputedStyle(document.querySelector('tbody tr')).display") == "grid"
