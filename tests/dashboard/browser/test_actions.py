"""Dead letters selected, edited, deleted and replayed in a real browser, and the token of this machine."""

from typing import Any

import pytest

from tests.dashboard.browser.tab import Tab, opened
from tests.dashboard.place import Place
from tests.dashboard.served import served

pytestmark = pytest.mark.slow


async def test_failures_are_replayed_from_their_group(tab: Tab, place: Place) -> None:
    await place.die(3)
    await tab.open("/failures")
    await tab.press("Replay orders CardDeclined")
    await tab.sees("This is the dry run.")
    await tab.page.get_by_text("As fast as it goes").click()
    await tab.press("Replay 4 dead letters")
    # The page follows it by itself.
    await tab.page.get_by_role("heading", name="4 of 4").wait_for()
    await tab.page.locator(".pill", has_text="done").wait_for()
    assert await place.count(place.dlq_table) == 0


async def test_letter_is_edited_and_replayed(tab: Tab, place: Place) -> None:
    await tab.open("/message", letter=place.letter_id)
    await tab.press("Edit…")
    body = tab.page.get_by_role("textbox", name="Body")
    await body.fill('{"item": "<img src=x onerror=alert(1)>",')
    await tab.press("Save")
    await tab.sees("is none any more")
    assert await body.input_value() == '{"item": "<img src=x onerror=alert(1)>",'
    await body.fill('{\n  "item": "<img src=x onerror=alert(1)>"\n}')
    await tab.page.get_by_role("textbox", name="Headers").fill('{"repaired-by": "ada"}')
    await tab.press("Save and replay…")
    await tab.sees("Changed body and headers of dead letter")
    await tab.sees("This is the dry run.")
    assert await place.letters() == [(b'{"item":"<img src=x onerror=alert(1)>"}', {"repaired-by": "ada"})]
    await tab.page.get_by_text("As fast as it goes").click()
    await tab.press("Replay 1 dead letter")
    await tab.page.locator(".pill", has_text="done").wait_for()
    assert await place.letters() == []
    # The browser's own word for the answer 422.
    tab.complaints[:] = [each for each in tab.complaints if "422" not in each]


async def test_selected_letters_are_deleted(tab: Tab, place: Place) -> None:
    await place.die(2)
    await tab.open("/failures")
    delete = tab.page.get_by_role("button", name="Delete selected…")
    assert await delete.is_disabled()
    await tab.page.get_by_label("Select all on this page").check()
    await tab.page.get_by_label(f"Select letter {place.letter_id}").uncheck()
    await delete.click()
    await tab.page.get_by_label("To confirm, type").fill("2")
    await tab.press("Delete for good")
    await tab.sees("Deleted 2 dead letters for good.")
    assert await place.count(place.dlq_table) == 1


async def test_token_of_this_machine_opens_it(browser: Any, empty: Place) -> None:
    dashboard = empty.dashboard(auth=None)
    async with served(dashboard) as base, opened(browser, base) as tab:
        await tab.open("/")
        await tab.sees("A token is needed")
        await tab.page.goto(dashboard.one_time.address(base))
        await tab.sees("operator on this machine")
        assert "token" not in tab.page.url
        await tab.open("/queues")
        await tab.sees("No queues")
