"""Who comes in, which forms are heard, and what every answer carries."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse

from faststream_outbox._internal.dashboard.guard import LARGEST_FORM
from faststream_outbox._internal.dashboard.rendering import assets
from faststream_outbox._internal.dashboard.screens import FORMS, SCREENS
from faststream_outbox.dashboard import Action, Audit, BasicAuth, User
from tests.dashboard.place import Place
from tests.dashboard.visitor import BASE, FORM, Visitor, visiting

PASSWORD = "correct horse"
OUTSIDE = [
    "/static/../dashboard.py", "/static/%2e%2e/dashboard.py", "/static/..%2fdashboard.py", "/static//etc/passwd",
    "/static/....//dashboard.py", "/static/vendor/../../auth.py", "/static/", "/static/colours.css/", "/static/%00",
    "//etc/passwd", "/static\\..\\auth.py",
]  # fmt: skip


async def test_nobody_comes_in_without_credentials(empty: Place) -> None:
    dashboard = empty.dashboard(auth=BasicAuth({"ada": PASSWORD}))
    async with visiting(dashboard) as visitor:
        for path in SCREENS:
            answer = await visitor.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic ")
        for path in FORMS:
            assert (await visitor.client.post(path, headers=FORM)).status_code == 401, path
        visitor.client.auth = httpx.BasicAuth("ada", "wrong")
        assert (await visitor.get()).status_code == 401
        visitor.client.auth = httpx.BasicAuth("ada", PASSWORD)
        assert (await visitor.get()).status_code == 200


async def test_auth_may_be_async_and_may_redirect(empty: Place) -> None:
    async def auth(request: Request) -> Any:
        await asyncio.sleep(0)
        return User("ada") if "x-user" in request.headers else RedirectResponse("https://login.example/")

    async with visiting(empty.dashboard(auth=auth)) as visitor:
        answer = await visitor.get()
        assert (answer.status_code, answer.headers["location"]) == (307, "https://login.example/")
        assert answer.headers["x-frame-options"] == "DENY"
        assert (await visitor.client.get("/", headers={"x-user": "1"})).status_code == 200


async def test_every_answer_carries_the_policy(visitor: Visitor) -> None:
    answers = [await visitor.get(path) for path in [*SCREENS, *assets(), "/nowhere"]]
    answers.append(await visitor.client.post("/queues/pause", headers=FORM))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"):
            assert part in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    kept = {str(answer.url.path) for answer in answers if answer.headers["cache-control"] != "no-store"}
    assert kept == set(assets())


async def test_pages_have_no_inline_script_or_style(visitor: Visitor) -> None:
    for path in SCREENS:
        text = (await visitor.get(path)).text.lower()
        for inline in ("<style", " style=", "<script>", "javascript:", " onclick="):
            assert inline not in text, (path, inline)
        assert "http://" not in text.replace(BASE, ""), path


async def test_static_files_are_those_of_the_folder(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        for path in OUTSIDE:
            # As it stands: httpx would make the path shorter.
            url = httpx.URL(BASE).copy_with(raw_path=path.encode())
            assert (await visitor.client.get(url)).status_code == 404, path


async def test_static_files_are_kept_by_browsers(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        answer = await visitor.get("/static/dashboard.css")
        assert answer.headers["content-type"] == "text/css; charset=utf-8"
        assert "immutable" in answer.headers["cache-control"]
        again = await visitor.client.get("/static/dashboard.css", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await visitor.client.post("/static/dashboard.css")).status_code == 405


async def pause(visitor: Any, headers: dict[str, str], **fields: str) -> int:
    content = urlencode({"queue": "orders", **fields})
    answer = await visitor.client.post("/queues/pause", content=content, headers=headers)
    return int(answer.status_code)


async def test_forms_of_others_are_not_heard(place: Place, visitor: Visitor) -> None:
    bare = {"content-type": FORM["content-type"]}
    token = await visitor.token()
    for status, headers, given in (
        (403, bare | {"origin": "https://evil.example"}, token),
        (403, FORM | {"sec-fetch-site": "cross-site"}, token),
        (403, bare, token),
        (403, FORM, "x" * 43),
        (415, FORM | {"content-type": "text/plain"}, token),
        (415, FORM | {"content-type": "application/json"}, token),
    ):
        assert await pause(visitor, headers, csrf=given) == status, (headers, given)
    assert await pause(visitor, FORM) == 403
    assert (await visitor.get("/queues/pause", queue="orders", csrf=token)).status_code == 405
    assert await place.paused() == []
    assert await pause(visitor, FORM, csrf=token) == 303
    assert await pause(visitor, {**FORM, "x-csrf-token": token}) == 303


async def test_forms_have_a_size(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        token = await visitor.token()
        assert await pause(visitor, FORM, csrf=token, more="x" * LARGEST_FORM) == 413
        content = "&".join(["a=1"] * 5000)
        assert (await visitor.client.post("/queues/pause", content=content, headers=FORM)).status_code == 400


async def test_cookies_are_for_nobody_else(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        cookie = (await visitor.get()).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "outbox_csrf_8710=" in cookie
        assert "Secure" not in cookie
    async with visiting(empty.dashboard(), base="https://ops.example") as visitor:
        assert "Secure" in (await visitor.get()).headers["set-cookie"]


async def test_one_time_token_opens_the_dashboard_once(empty: Place) -> None:
    dashboard = empty.dashboard(auth=None)
    token = dashboard.one_time.token
    async with visiting(dashboard) as visitor:
        assert (await visitor.get()).status_code == 401
        assert (await visitor.get(token="wrong")).status_code == 401
        answer = await visitor.get(token=token)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert "operator on this machine" in await visitor.page()
        visitor.client.cookies.clear()
        assert (await visitor.get(token=token)).status_code == 401


async def test_open_dashboard_is_not_for_other_machines(empty: Place) -> None:
    dashboard = empty.dashboard(auth=None)
    ways: list[dict[str, Any]] = [{"client": "192.0.2.9"}, {"base": "http://evil.example"}]
    for way in [*ways, {"headers": {"x-forwarded-for": "192.0.2.9"}}]:
        async with visiting(dashboard, **way) as visitor:
            assert (await visitor.get(token=dashboard.one_time.token)).status_code == 403, way


async def test_read_only_dashboard_acts_on_nothing(place: Place) -> None:
    heard: list[Audit] = []
    async with visiting(place.dashboard(read_only=True, on_action=heard.append)) as visitor:
        paths = ("/", "/queues", "/failures", "/timers", "/groups", "/keys")
        text = "".join([await visitor.page(path) for path in paths])
        assert 'method="post"' not in text
        assert "read-only" in text
        for path in FORMS:
            assert (await visitor.post(path, queue="orders")).status_code == 403, path
    assert {audit.outcome for audit in heard} == {"refused"}
    assert len(heard) == len(FORMS)
    assert await place.paused() == []


async def test_can_decides_about_each_action(place: Place) -> None:
    async def can(user: User, action: Action) -> bool:
        return action in (Action.READ, Action.PAUSE_QUEUE) and user.name == "ada"

    async with visiting(place.dashboard(auth=lambda _: User("ada"), can=can)) as visitor:
        text = await visitor.page("/queues")
        assert "/queues/pause" in text
        assert "is paused" in (await visitor.post("/queues/pause", queue="orders", back="/queues")).text
        assert (await visitor.post("/purge/start", queue="orders")).status_code == 403
        letter = await visitor.page("/message", letter=place.letter_id)
        assert "a chair" not in letter
        assert "You may not read bodies." in letter
    async with visiting(place.dashboard(auth=lambda _: User("bob"), can=can)) as visitor:
        assert (await visitor.get("/queues")).status_code == 403


async def test_what_can_answers_must_be_true(place: Place) -> None:
    async with visiting(place.dashboard(can=lambda user, action: "no")) as visitor:
        assert (await visitor.get("/")).status_code == 403


async def test_actions_are_audited(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Audit] = []

    async def hook(audit: Audit) -> None:
        heard.append(audit)
        raise RuntimeError("the hook's own trouble")

    caplog.set_level("INFO", "faststream_outbox.dashboard")
    async with visiting(place.dashboard(on_action=hook), client="127.0.0.9") as visitor:
        await visitor.post("/queues/pause", queue="orders")
        await visitor.post("/queues/pause", queue="no\nsuch")
    done, failed = heard
    assert (done.user, done.action, done.target, done.outcome) == ("ada", "pause_queue", {"queue": "orders"}, "done")
    assert done.client == "127.0.0.9"
    assert (failed.outcome, failed.target["queue"]) == ("failed", "no\nsuch")
    lines = [record for record in caplog.records if hasattr(record, "outbox_action")]
    assert [(line.outbox_user, line.outbox_outcome) for line in lines] == [("ada", "done"), ("ada", "failed")]  # type: ignore[attr-defined]
    assert all("\n" not in line.getMessage() for line in lines)


async def test_forms_lead_back_to_our_pages_only(visitor: Visitor) -> None:
    elsewhere = ("https://evil.example/", "//evil.example", "/\\evil.example", "/a\r\nx: y", "", "javascript:x")
    for back in elsewhere:
        answer = await visitor.post("/queues/pause", follow=False, queue="orders", back=back)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), back


async def test_screens_that_do_not_exist(empty: Place) -> None:
    async with visiting(empty.dashboard()) as visitor:
        assert (await visitor.get("/nothing")).status_code == 404
        assert (await visitor.client.request("DELETE", "/queues")).status_code == 405
        assert (await visitor.client.head("/queues")).status_code == 200


async def test_websockets_are_closed(empty: Place) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await empty.dashboard()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
