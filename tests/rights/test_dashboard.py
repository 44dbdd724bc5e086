"""The dashboard with the roles of the security page: who looks sees every screen, who operates can do everything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from faststream_outbox._internal.dashboard.screens import FORMS
from tests.dashboard.place import Place
from tests.dashboard.promises.test_screens import every_page
from tests.dashboard.test_actions import edit_form
from tests.dashboard.visitor import Visitor, visiting
from tests.rights.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.slow

GROUP = {"group": "billing", "uri": "invoices"}


@asynccontextmanager
async def visiting_as(role: str, stage: Stage, place: Place) -> AsyncIterator[Visitor]:
    async with stage.acting(role) as engine, visiting(place.dashboard(source=engine)) as visitor:
        yield visitor


def forms(place: Place) -> dict[str, dict[str, object]]:
    """What each button sends, in an order in which all of them work."""
    where = {**GROUP, "position": place.parked_position}
    typed = {**GROUP, "typed": "billing"}
    counted = {"queue": "orders", "newest": place.letter_id + 30, "count": 31}
    return {
        "/queues/pause": {"queue": "orders"},
        "/queues/resume": {"queue": "orders"},
        "/timers/cancel": {"queue": "orders", "timer_id": "reminder-7"},
        "/replay/start": {**counted, "pace": "ramp", "rate": "1"},
        "/purge/start": {**counted, "typed": "31"},
        "/groups/pause": {**GROUP},
        "/groups/resume": {**GROUP},
        "/keys/retry": {**where},
        "/keys/skip": {**where},
        "/groups/seek": {**typed, "to": "earliest"},
        "/groups/delete": {**typed},
    }


async def buttons(visitor: Visitor, place: Place) -> dict[str, dict[str, object]]:
    """The same with an edit of a dead letter, whose page says which state of it is changed."""
    edit = await edit_form(visitor, place)
    return {"/message/edit": {**edit, "headers": '{"source": "web"}'}, **forms(place)}


async def test_viewer_sees_every_screen(stage: Stage, place: Place) -> None:
    async with visiting_as("outbox_viewer", stage, place) as visitor:
        for path, given in every_page(place):
            assert "Not answered" not in await visitor.page(path, **given), (path, given)


async def test_viewer_is_told_which_right_is_missing(stage: Stage, place: Place) -> None:
    await place.die(30)
    async with visiting_as("outbox_viewer", stage, place) as visitor:
        for path, form in (await buttons(visitor, place)).items():
            answer = await visitor.post(path, **form)
            if path == "/replay/start":
                # It begins, and says it on its own page.
                page = str(answer.url)

                async def is_refused(page: str = page) -> bool:
                    return "ermission denied" in (await visitor.client.get(page)).text

                await eventually(is_refused)
            elif path not in ("/queues/resume", "/groups/resume"):
                assert "ermission denied" in answer.text, path
                assert "docs/security.md" in answer.text, path
    assert await place.count(place.dlq_table) == 31
    assert await place.count(place.table) == 3


async def test_operator_can_do_everything(stage: Stage, place: Place) -> None:
    await place.die(30)
    assert {*forms(place), "/message/edit", "/replay/cancel"} == set(FORMS)
    async with visiting_as("outbox_operator", stage, place) as visitor:
        for path, form in (await buttons(visitor, place)).items():
            answer = await visitor.post(path, **form)
            assert answer.status_code == 200, path
            assert 'class="flash"' in answer.text, (path, answer.text[-1500:])
            if path == "/replay/start":
                run = str(answer.url).partition("id=")[2]
                assert "Cancelled after" in (await visitor.post("/replay/cancel", run=run)).text
    assert await place.count(place.dlq_table) == 0
