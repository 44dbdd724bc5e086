"""What buttons do, on real tables; and what a role that may only read is told."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.dashboard.actions import READING, TIME_LIMITS
from faststream_outbox.dashboard import Action, Audit, hide_fields
from tests.cases import case
from tests.dashboard.place import Place
from tests.dashboard.visitor import Visitor, visiting
from tests.waiting import eventually

GROUP = {"group": "billing", "uri": "invoices"}
UNCHANGED = [(b'{"item": "a chair", "card_number": "4242"}', {"source": "shop"})]
WHERE = "group=billing&uri=invoices"


@pytest.mark.parametrize("is_broker", [False, True])
async def test_queue_is_paused_and_resumed(place: Place, is_broker: bool) -> None:
    options = {}
    if is_broker:
        broker = OutboxBroker(place.engine, outbox_table=place.table, dlq_table=place.dlq_table, logger=None)
        options = {"source": broker, "table": None, "dlq_table": None, "log_tables": None}
    async with visiting(place.dashboard(**options)) as visitor:
        page = await visitor.press("Pause", "/queue?name=orders")
        assert "orders is paused." in page
        assert "Paused in every process" in page
        assert await place.paused() == ["orders"]
        assert "orders runs." in await visitor.press("Resume", "/queue?name=orders")
        assert await place.paused() == []
        assert "did you mean" in (await visitor.post("/queues/pause", queue="order")).text


async def test_timer_is_cancelled(place: Place, visitor: Visitor) -> None:
    page = await visitor.press("Cancel the timer reminder-7", "/timers")
    assert "will not fire" in page
    assert "No timers" in page
    assert await place.count(place.table, "timer_id is not null") == 0
    again = await visitor.post("/timers/cancel", queue="orders", timer_id="reminder-7", back="/timers")
    assert "was not cancelled" in again.text


async def test_what_was_counted_is_replayed(place: Place, visitor: Visitor) -> None:
    await place.die(4)
    page = await visitor.page("/replay", queue="orders")
    assert "Replay 5 dead letters" in page
    newest = page.split('name="newest" value="')[1].split('"')[0]
    await place.die(1, original_id=700_000)
    form = {"queue": "orders", "newest": newest, "count": "5", "pace": "full"}
    answer = await visitor.post("/replay/start", follow=False, **form)
    location = answer.headers["location"]
    assert location.startswith("/replays?id=")

    async def is_done() -> bool:
        return ">done<" in (await visitor.client.get(location)).text

    await eventually(is_done)
    assert "5 of 5" in (await visitor.client.get(location)).text
    assert await place.count(place.dlq_table) == 1, "the letter that died after the count stays dead"
    assert "done" in await visitor.page("/replays")


async def test_selected_letters_are_replayed(place: Place, visitor: Visitor) -> None:
    await place.die(3)
    assert "Replay 1 dead letter" in await visitor.page("/replay", id=place.letter_id)
    both = await visitor.page(f"/replay?id={place.letter_id}&id={place.letter_id + 1}")
    assert "Replay 2 dead letters" in both


async def test_replay_begins_slowly_and_is_cancelled(place: Place, visitor: Visitor) -> None:
    await place.die(40)
    form = {"queue": "orders", "newest": place.letter_id + 40, "count": 41, "pace": "ramp", "rate": "20"}
    answer = await visitor.post("/replay/start", follow=False, **form)
    location = answer.headers["location"]

    async def is_moving() -> bool:
        return "41 of 41" not in (page := (await visitor.client.get(location)).text) and "0 of 41" not in page

    await eventually(is_moving)
    run = location.partition("id=")[2]
    page = await visitor.press("Cancel", location)
    assert "Cancelled after" in page
    assert "select it again" in page
    dead = await place.count(place.dlq_table)
    assert 0 < dead < 41
    assert await place.count(place.table, "id >= 800000") == 41 - dead
    assert "does not run any more" in (await visitor.post("/replay/cancel", run=run)).text


async def test_rates_that_make_no_sense_are_refused(place: Place, visitor: Visitor) -> None:
    form = {"queue": "orders", "newest": place.letter_id, "count": 1, "pace": "rate"}
    for rate in ("0", "-1", "nan", "inf", "x", ""):
        assert "rate must be a number" in (await visitor.post("/replay/start", **form, rate=rate)).text, rate
    assert (await visitor.post("/replay/start", queue="orders")).status_code == 400
    assert await place.count(place.dlq_table) == 1


async def test_letters_are_deleted_after_their_number_was_typed(place: Place, visitor: Visitor) -> None:
    await place.die(2)
    assert "3 dead letters would be deleted" in await visitor.page("/purge", queue="orders")
    assert "type the number 3" in await visitor.press("Delete for good", "/purge?queue=orders", typed="")
    assert await place.count(place.dlq_table) == 3
    assert "Deleted 3 dead letters" in await visitor.press("Delete for good", "/purge?queue=orders", typed="3")
    assert await place.count(place.dlq_table) == 0


async def test_group_is_paused_and_resumed(visitor: Visitor) -> None:
    assert "Paused in every process" in await visitor.press("Pause", f"/group?{WHERE}")
    assert "billing is read." in await visitor.press("Resume", f"/group?{WHERE}")


async def test_group_is_moved_after_its_name_was_typed(visitor: Visitor) -> None:
    moment = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="seconds")
    assert "type the group" in await visitor.press("Seek", f"/seek?{WHERE}", to="earliest")
    for to in ({"to": "earliest"}, {"to": "latest"}, {"to": "time", "moment": moment}):
        assert "goes on behind tick" in await visitor.press("Seek", f"/seek?{WHERE}", typed="billing", **to), to
    cursor = {"to": "cursor", "tick": "1", "position": "1", "typed": "billing"}
    assert "behind tick 1, position 1" in (await visitor.post("/groups/seek", **GROUP, **cursor)).text
    for wrong in ({"to": "time", "moment": "x"}, {"to": "event", "event_id": "x"}, {"to": "x"}, {}):
        answer = await visitor.post("/groups/seek", **GROUP, typed="billing", **wrong)
        assert "Say where to" in answer.text, wrong


async def test_group_is_deleted_after_its_name_was_typed(visitor: Visitor) -> None:
    assert "Nothing was deleted" in await visitor.press("Delete the group", f"/delete?{WHERE}", typed="bill")
    assert "billing is deleted" in await visitor.press("Delete the group", f"/delete?{WHERE}", typed="billing")
    assert "No groups" in await visitor.page("/groups")


async def test_parked_message_is_retried_or_skipped(place: Place, visitor: Visitor) -> None:
    where = GROUP | {"position": place.parked_position}
    page = await visitor.press(f"Retry parked position {place.parked_position}", "/keys")
    assert "1 message of billing will run again" in page
    assert "Nothing to retry" in (await visitor.post("/keys/retry", **where)).text
    page = await visitor.press("Skip it", f"/skip?{WHERE}&position={place.parked_position}")
    assert f"Position {place.parked_position} is skipped" in page
    assert "does not wait" in (await visitor.post("/keys/skip", **where)).text
    assert (await visitor.post("/keys/skip", **GROUP, position="x")).status_code == 400


async def test_all_parked_messages_of_a_group_are_retried(visitor: Visitor) -> None:
    page = await visitor.press("Retry all of billing", "/keys?group=billing")
    assert "1 message of billing will run again" in page


async def test_letter_is_edited_on_its_page_and_replayed(place: Place) -> None:
    heard: list[Audit] = []
    async with visiting(place.dashboard(on_action=heard.append)) as visitor:
        assert "Edit…" in await visitor.page("/message", letter=place.letter_id)
        form = await edit_form(visitor, place)
        assert form["body"] == '{\n  "item": "a chair",\n  "card_number": "4242"\n}'
        form["body"] = form["body"].replace("a chair", "a table").replace("\n", "\r\n")
        answer = await visitor.post("/message/edit", follow=False, then="replay", **form)
        assert answer.headers["location"] == f"/replay?ids={place.letter_id}"
        assert await place.letters() == [(b'{"item":"a table","card_number":"4242"}', {"source": "shop"})]
        form = await edit_form(visitor, place)
        answer = await visitor.post("/message/edit", **(form | {"headers": '{"source": "web"}'}))
        assert "Changed headers of dead letter" in answer.text
        assert await place.letters() == [(b'{"item":"a table","card_number":"4242"}', {"source": "web"})]
    assert [(audit.action, audit.outcome, audit.target["changed"]) for audit in heard] == [
        (Action.EDIT, "done", ["body"]),
        (Action.EDIT, "done", ["headers"]),
    ]
    assert heard[0].target["after"] == heard[1].target["before"]
    assert "chair" not in str(heard)


async def test_edit_that_cannot_be_used_comes_back_with_what_was_typed(place: Place) -> None:
    heard: list[Audit] = []
    async with visiting(place.dashboard(on_action=heard.append)) as visitor:
        form = await edit_form(visitor, place)
        for changed, why in (
            ({"body": '{"item": <b>mine</b>'}, "is none any more"),
            ({"headers": "[<b>mine</b>]"}, "no JSON object"),
            ({"body": form["body"] + "<b>mine</b>", "version": "other"}, "Somebody changed it"),
            ({}, "Nothing is changed"),
        ):
            with case(changed):
                answer = await visitor.post("/message/edit", **(form | changed))
                assert answer.status_code == 422
                assert why in answer.text
                assert not changed or "&lt;b&gt;mine&lt;/b&gt;" in answer.text
                assert "<b>mine" not in answer.text
        assert (await visitor.post("/message/edit", **(form | {"letter": "x"}))).status_code == 400
        assert (await visitor.post("/message/edit", **(form | {"letter": "99999"}))).status_code == 404
        assert await place.letters() == UNCHANGED
    assert {(audit.action, audit.outcome) for audit in heard} == {(Action.EDIT, "failed")}
    assert "mine" not in str(heard), "bodies stay out of the audit"


async def test_masks_of_the_redactor_are_never_written_back(place: Place) -> None:
    async with visiting(place.dashboard(redact=hide_fields("card_*"))) as visitor:
        form = await edit_form(visitor, place)
        assert "body" not in form
        answer = await visitor.post("/message/edit", **(form | {"body": "{}", "headers": '{"source": "web"}'}))
        assert "Changed headers" in answer.text
        assert await place.letters() == [(b'{"item": "a chair", "card_number": "4242"}', {"source": "web"})]


async def test_who_may_not_read_bodies_may_not_edit_them(place: Place, visitor: Visitor) -> None:
    form = await edit_form(visitor, place)
    for denied in (Action.READ_BODY, Action.EDIT):
        may = place.dashboard(can=lambda _, action, no=denied: action != no)
        async with visiting(may) as visitor:
            assert "Edit…" not in await visitor.page("/message", letter=place.letter_id)
            assert (await visitor.get("/message", letter=place.letter_id, edit="yes")).status_code == 403
            answer = await visitor.post("/message/edit", **(form | {"body": "{}"}))
            assert answer.status_code == 403
    assert await place.letters() == UNCHANGED


async def test_action_that_takes_too_long_is_stopped_and_said(
    place: Place, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.dashboard.dashboard.TIME_LIMITS", dict.fromkeys(Action, 0.5))
    form = await edit_form(visitor, place)
    async with place.engine.begin() as holder:
        await holder.execute(text("select from outbox_dlq for update"))
        answer = await visitor.post("/message/edit", **(form | {"headers": "{}"}))
        assert "it took longer than 0.5 seconds" in answer.text
        form = {"queue": "orders", "newest": place.letter_id, "count": 1, "typed": "1"}
        assert "it took longer than 0.5 seconds" in (await visitor.post("/purge/start", **form)).text

        async def is_ended() -> bool:
            asked = "select count(*) from pg_stat_activity where query ~ 'outbox_dlq' and wait_event_type = 'Lock'"
            return (await holder.execute(text(asked))).scalar_one() == 0

        await eventually(is_ended)
    assert await place.letters() == UNCHANGED


def test_every_action_that_changes_something_has_a_time_limit() -> None:
    assert set(TIME_LIMITS) == set(Action) - READING


async def edit_form(visitor: Visitor, place: Place) -> dict[str, str]:
    """The fields of the form, as a browser has them."""
    page = await visitor.page("/message", letter=place.letter_id, edit="yes")
    fields = dict(re.findall(r'<input type="hidden" name="(letter|version)" value="([^"]*)">', page))
    areas = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    return fields | {name: html.unescape(typed) for name, typed in areas}
