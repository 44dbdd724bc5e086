"""Every button, pressed in a real browser."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.browser.tab import Tab, opened
from tests.dashboard.place import Place
from tests.dashboard.served import served

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.slow

GROUP: dict[str, Any] = {"group": "billing", "uri": "invoices"}


async def test_queue_is_paused_and_resumed(browser: "Browser", place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/queue", name="orders")
        await tab.press("Pause")
        await tab.sees("Paused in every process")
        assert await place.paused() == ["orders"]
        await tab.press("Resume")
        await tab.sees("orders runs.")
        assert await place.paused() == []
        assert tab.complaints == []


async def test_timer_is_cancelled(browser: "Browser", place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/timers")
        await tab.press("Cancel the timer reminder-7")
        await tab.sees("will not fire")
        await tab.sees("No timers")
        assert tab.complaints == []


async def test_failures_are_replayed_from_their_group(browser: "Browser", place: Place) -> None:
    await place.die(3)
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/failures")
        await tab.press("Replay orders CardDeclined")
        await tab.sees("This is the dry run.")
        await tab.page.get_by_text("As fast as it goes").click()
        await tab.press("Replay 4 dead letters")
        # The page follows it by itself.
        await tab.page.get_by_role("heading", name="4 of 4").wait_for()
        await tab.page.locator(".pill", has_text="done").wait_for()
        assert await place.count(place.dlq_table) == 0
        assert tab.complaints == []


async def test_letter_is_edited_and_replayed(browser: "Browser", place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
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
        assert [each for each in tab.complaints if "422" not in each] == []


async def test_replay_is_cancelled(browser: "Browser", place: Place) -> None:
    await place.die(30)
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/replay", queue="orders")
        await tab.press("Replay 31 dead letters")
        await tab.press("Cancel")
        await tab.sees("Cancelled after")
        assert await place.count(place.dlq_table) > 0
        assert tab.complaints == []


async def test_selected_letters_are_deleted(browser: "Browser", place: Place) -> None:
    await place.die(2)
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
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
        assert tab.complaints == []


async def test_group_is_paused_moved_and_deleted(browser: "Browser", place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/group", **GROUP)
        await tab.press("Pause")
        await tab.sees("Paused in every process")
        await tab.press("Resume")
        await tab.sees("billing is read.")
        await tab.press("Seek…")
        await tab.page.get_by_label("The beginning").check()
        await confirm(tab, "billing")
        await tab.press("Seek")
        await tab.sees("goes on behind tick 0")
        await tab.press("Delete…")
        await confirm(tab, "wrong")
        await tab.press("Delete the group")
        await tab.sees("Nothing was deleted")
        await confirm(tab, "billing")
        await tab.press("Delete the group")
        await tab.sees("billing is deleted")
        assert tab.complaints == []


async def confirm(tab: Tab, text: str) -> None:
    await tab.page.get_by_label("To confirm, type").fill(text)


async def test_parked_message_is_retried_and_skipped(browser: "Browser", place: Place) -> None:
    async with served(place.dashboard()) as base, opened(browser, base) as tab:
        await tab.open("/keys")
        await tab.press(f"Retry parked position {place.parked_position}")
        await tab.sees("1 message of billing will run again.")
        await tab.press(f"Skip position {place.parked_position}")
        await tab.press("Skip it")
        await tab.sees(f"Position {place.parked_position} is skipped")
        assert tab.complaints == []


async def test_token_of_this_machine_opens_it(browser: "Browser", empty: Place) -> None:
    dashboard = empty.dashboard(auth=None)
    assert dashboard.one_time is not None
    async with served(dashboard) as base, opened(browser, base) as tab:
        await tab.open("/")
        await tab.sees("A token is needed")
        await tab.page.goto(dashboard.one_time.address(base))
        await tab.sees("operator on this machine")
        assert "token" not in tab.page.url
        await tab.open("/queues")
        await tab.sees("No queues")
