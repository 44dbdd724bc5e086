"""What each screen shows of real tables: empty, filled, and filled by somebody who writes markup."""

from dataclasses import fields, replace
from urllib.parse import quote

import pytest
from sqlalchemy import text

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.dashboard.screens import SCREENS
from faststream_outbox.dashboard import hide_fields
from tests.dashboard.place import Place, Words
from tests.dashboard.visitor import Visitor, visiting
from tests.waiting import eventually

SCRIPT = "<script>alert(1)</script>"
ODD = "\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def every_page(place: Place) -> list[tuple[str, dict[str, object]]]:
    """All screens, with what there is to see."""
    said = place.words
    group = {"group": said.group, "uri": said.uri}
    return [
        ("/", {}),
        ("/history", {}),
        ("/failures", {}),
        ("/failures", {"queue": said.queue, "error_type": said.error_type, "key": said.key}),
        ("/message", {"id": place.message_id}),
        ("/message", {"letter": place.letter_id}),
        ("/replay", {"queue": said.queue, "key": said.key}),
        ("/replays", {}),
        ("/purge", {"queue": said.queue, "error_type": said.error_type}),
        ("/queues", {}),
        ("/queues", {"q": said.queue, "sort": "ready"}),
        ("/queue", {"name": said.queue}),
        ("/timers", {}),
        ("/timers", {"queue": said.queue}),
        ("/groups", {}),
        ("/groups", {"q": said.group}),
        ("/group", group),
        ("/seek", group),
        ("/delete", group),
        ("/keys", {}),
        ("/keys", {"group": said.group}),
        ("/parked", {**group, "position": place.parked_position}),
        ("/skip", {**group, "position": place.parked_position}),
        ("/workers", {}),
        ("/health", {}),
    ]


async def test_empty_screens_say_so(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        said = {
            "/": "Nothing is wrong",
            "/failures": "Nothing has failed for good",
            "/queues": "No queues",
            "/timers": "No timers",
            "/replays": "No replays",
            "/groups": "No groups",
            "/keys": "Nothing is parked",
            "/replay": "Nothing to replay",
            "/purge": "Nothing to delete",
        }
        for path, words in said.items():
            assert words in await visitor.page(path), path


async def test_screens_show_what_there_is(place: Place, visitor: Visitor) -> None:
    pages = {(path, *given): await visitor.page(path, **given) for path, given in every_page(place)}
    assert "Not answered" not in "".join(pages.values())
    assert {path for path, *_ in pages} == set(SCREENS) - {"/find", "/relays"}
    assert "CardDeclined" in pages["/failures",]
    letter = pages["/message", "letter"]
    for words in ("insufficient funds", "Traceback (most recent call last)", "a chair", "customer-7", "4242"):
        assert words in letter
    assert "leased" in pages["/message", "id"]
    assert "reminder-7" in pages["/timers",]
    assert "invoices/1" in pages["/keys",]
    assert "a chair" in pages["/parked", "group", "uri", "position"]
    assert "0–255" in pages["/group", "group", "uri"]


@pytest.mark.slow
async def test_everything_that_strangers_write_is_escaped(empty: Place) -> None:
    for evil in (SCRIPT, ODD):
        short = {"queue": evil[:250], "uri": f"x/{quote(evil[:60], safe='')}"}
        await empty.fill(Words(**{each.name: short.get(each.name, evil) for each in fields(Words)}))
    async with visiting(empty.dashboard(title=SCRIPT, auth=lambda _: SCRIPT)) as visitor:
        for words in (SCRIPT, ODD):
            empty.words = replace(empty.words, queue=words)
            for path, given in every_page(empty):
                answer = await visitor.get(path, **given)
                assert answer.status_code == 200, (path, given, answer.text[-500:])
                if path != "/history":
                    assert "<script>alert" not in answer.text, path
                    assert "<img" not in answer.text, path
                    assert "\"'>" not in answer.text, path
        await visitor.post("/queues/pause", queue=SCRIPT)
        assert "&lt;script&gt;" in (await visitor.post("/queues/pause", queue=SCRIPT + "none")).text
        assert "<script>alert" not in (await visitor.get("/find", q=SCRIPT)).text


async def test_names_of_applications_are_escaped(place: Place, visitor: Visitor) -> None:
    async with place.engine.connect() as connection:
        await connection.execute(text("select set_config('application_name', :name, false)"), {"name": SCRIPT})
        name = f"faststream-outbox {SCRIPT}"
        await connection.execute(text("select set_config('application_name', :name, false)"), {"name": name[:63]})
        for path in ("/workers", "/groups", "/health"):
            assert "<script>alert" not in await visitor.page(path)
        await connection.rollback()


async def test_redactor_is_asked_for_every_body(place: Place) -> None:
    async with visiting(place.dashboard(redact=hide_fields("item", "card_*", "source"))) as visitor:
        for given in ({"letter": place.letter_id}, {"id": place.message_id}):
            page = await visitor.page("/message", **given)
            assert "a chair" not in page
            assert "4242" not in page
            assert "•••" in page
        page = await visitor.page("/parked", group="billing", uri="invoices", position=place.parked_position)
        assert "a chair" not in page


async def test_error_that_a_redactor_hides_is_on_no_screen(place: Place) -> None:
    async with visiting(place.dashboard(redact=lambda _: None)) as visitor:
        for path, given in every_page(place):
            page = await visitor.page(path, **given)
            assert "insufficient funds" not in page, path
            assert "a chair" not in page, path


async def test_trace_is_linked(place: Place) -> None:
    async with visiting(place.dashboard(trace_url="https://traces.example/{message_id}?q={queue}")) as visitor:
        page = await visitor.page("/message", letter=place.letter_id)
        assert 'href="https://traces.example/' in page
        assert 'rel="noreferrer noopener"' in page


async def test_search_leads_to_messages_queues_and_keys(place: Place, visitor: Visitor) -> None:
    for typed, target in (
        (str(place.message_id), f"/message?id={place.message_id}"),
        ("orders", "/queue?name=orders"),
        ("rder", "/queues?q=rder"),
        ("customer-7", "/failures?key=customer-7"),
    ):
        answer = await visitor.get("/find", q=typed)
        assert (answer.status_code, answer.headers["location"]) == (303, target)


async def test_what_is_not_there_is_said(visitor: Visitor) -> None:
    for path, given, status in (
        ("/message", {}, 400),
        ("/message", {"id": "x"}, 400),
        ("/message", {"id": 10**15}, 404),
        ("/message", {"letter": 10**15}, 404),
        ("/queue", {}, 400),
        ("/group", {"group": "nobody"}, 404),
        ("/parked", {"group": "billing", "uri": "invoices", "position": 10**9}, 404),
        ("/parked", {"group": "billing", "position": "x"}, 400),
        ("/replays", {"id": "x"}, 404),
        ("/relays", {}, 404),
    ):
        assert (await visitor.get(path, **given)).status_code == status, path


async def test_dashboard_of_queues_alone(place: Place) -> None:
    dashboard = place.dashboard(dlq_table=None, log_tables=None)
    async with visiting(dashboard) as visitor:
        page = await visitor.page("/")
        assert 'href="/failures"' not in page
        assert 'href="/groups"' not in page
        for path in ("/failures", "/groups", "/keys", "/replay", "/purge"):
            assert (await visitor.get(path)).status_code == 404, path


async def test_dashboard_of_topics_alone(place: Place) -> None:
    async with visiting(place.dashboard(table=None, dlq_table=None)) as visitor:
        page = await visitor.page("/")
        assert "billing" in page
        assert (await visitor.get("/queues")).status_code == 404
        assert "invoices" in await visitor.page("/groups")


async def test_dashboard_of_a_broker_shows_its_relays(place: Place) -> None:
    class Transport:
        name = "far end"

        async def start(self) -> None: ...
        async def stop(self) -> None: ...
        async def send(self, messages: object) -> list[object]:
            return []

    broker = OutboxBroker(place.engine, outbox_table=place.table, dlq_table=place.dlq_table, logger=None)
    broker.relay("orders", to=Transport(), name="orders to the far end")
    dashboard = place.dashboard(source=broker, table=None, dlq_table=None, log_tables=None)
    async with visiting(dashboard) as visitor:
        page = await visitor.page("/relays")
        assert "orders to the far end" in page
        assert "stopped" in page


async def test_charts_have_data_after_a_visit(visitor: Visitor) -> None:
    await visitor.page("/")

    async def drawn() -> bool:
        history = (await visitor.get("/history")).json()
        return bool(history["at"]) and history["dead"][-1] == 1

    await eventually(drawn)


async def test_database_that_does_not_answer_is_said(empty: Place) -> None:
    dashboard = empty.dashboard()
    async with visiting(dashboard) as visitor:
        async with empty.engine.begin() as connection:
            await connection.execute(text(f"alter table {empty.table.name} rename to elsewhere"))
        try:
            assert "run your migrations" in await visitor.page("/queues")
            assert (await visitor.get("/workers")).status_code == 200
        finally:
            async with empty.engine.begin() as connection:
                await connection.execute(text(f"alter table elsewhere rename to {empty.table.name}"))
