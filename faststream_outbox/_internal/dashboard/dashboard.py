"""The dashboard as an ASGI application: who may come in, which screen answers, and what was done.

`make_dashboard` makes it. All paths are fixed and ids stand in the query, so that `AsgiFastStream`, which compares
whole paths, can have it too: `dashboard.routes("/outbox")`. It starts nothing before the first visitor. `serve` runs it
on a server of its own, uvicorn, for the command line and for whoever has no web application.
"""

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from faststream_outbox._internal.dashboard import rendering
from faststream_outbox._internal.dashboard.actions import (
    READING,
    TIME_LIMITS,
    Action,
    Audit,
    Can,
    OnAction,
    Options,
    Outcome,
    write,
)
from faststream_outbox._internal.dashboard.auth import Auth, OneTimeToken, is_loopback
from faststream_outbox._internal.dashboard.content import Redact
from faststream_outbox._internal.dashboard.guard import Guard, Refused, Visitor, finish, root_of
from faststream_outbox._internal.dashboard.monitor import Monitor
from faststream_outbox._internal.dashboard.page import Again, Done, House, Page, route_path
from faststream_outbox._internal.dashboard.rendering import render
from faststream_outbox._internal.dashboard.replays import Replays
from faststream_outbox._internal.dashboard.screens import FORMS, SCREENS
from faststream_outbox._internal.dashboard.source import INVALID, describe, source_of
from faststream_outbox._internal.options import checked_flag
from faststream_outbox._internal.overview.queues import OLD_SECONDS
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.errors import InvalidOption

if TYPE_CHECKING:
    from faststream_outbox._internal.broker.broker import OutboxBroker

logger = logging.getLogger("faststream_outbox.dashboard")

TIMEOUT = 5.0


class Dashboard:
    """Mount it, give its routes to `AsgiFastStream`, or run it with `serve`."""

    def __init__(self, house: House, auth: Auth | None) -> None:
        self._house = house
        given = OneTimeToken() if auth is None else auth
        self.one_time: OneTimeToken | None = given if isinstance(given, OneTimeToken) else None
        """What lets somebody in where no auth was given."""
        self._guard = Guard(given)

    @property
    def paths(self) -> list[str]:
        """Every path that it answers, below the place where it is mounted."""
        return ["", *SCREENS, *FORMS, *rendering.assets()]

    def routes(self, prefix: str) -> list[tuple[str, ASGIApp]]:
        """What `AsgiFastStream(asgi_routes=…)` takes, which knows whole paths only.

        prefix: where the dashboard is to be found, for instance "/outbox".
        """
        root = "/" + prefix.strip("/")

        async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
            await self({**scope, "root_path": root}, receive, send)

        return [(root + path, mounted) for path in self.paths]

    async def close(self) -> None:
        """Cancel replays, stop sampling, close connections; a later request would open them again."""
        await self._house.replays.close()
        await self._house.monitor.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            response = await self._respond(request)
            await response(scope, receive, send)
        else:
            # A websocket, which nothing here wants.
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Startup and shutdown, where it is the whole application."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _respond(self, request: Request) -> Response:
        path = route_path(request)
        asset = rendering.assets().get(path)
        visitor: Visitor | None = None
        try:
            if asset is not None:
                _check_method(request, "GET")
                return finish(rendering.answer(asset, request), request, None)
            admitted = await self._guard.admit(request)
            if isinstance(admitted, Response):
                return finish(admitted, request, None)
            visitor = admitted
            response = await self._answer(request, path, visitor)
        except Refused as refused:
            response = self._sorry(request, refused)
        except INVALID as error:
            # A name that no queue can have, a number that no id can be: whoever wrote the address.
            response = self._sorry(request, Refused(400, "There is no such thing", str(error)))
        except Exception:
            logger.exception("A screen of the dashboard failed: %r", path)
            response = self._sorry(request, Refused(500, "This screen failed", "The log has the details."))
        return finish(response, request, visitor)

    async def _answer(self, request: Request, path: str, visitor: Visitor) -> Response:
        allowed = await self._allowed(visitor.user)
        page = Page(request, self._house, visitor, allowed)
        screen, form = SCREENS.get(path or "/"), FORMS.get(path)
        if form is not None:
            _check_method(request, "POST")
            return await self._act(page, *form)
        if screen is None:
            raise Refused(404, "There is no such screen")
        _check_method(request, "GET")
        if Action.READ not in allowed:
            raise Refused(403, "Not allowed", "You may not read this dashboard.")
        self._house.monitor.visit()
        return await screen(page)

    async def _allowed(self, user: Any) -> frozenset[Action]:
        """What a user may do, asked anew for each request."""
        options = self._house.options
        found = set()
        for action in Action:
            if options.read_only and action not in READING:
                continue
            answer = True if options.can is None else options.can(user, action)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is True:
                found.add(action)
        return frozenset(found)

    async def _act(self, page: Page, action: Action, act: Any) -> Response:
        """Do what a form asks for, and write down what came of it."""
        if not page.may(action) or Action.READ not in page.allowed:
            await self._write(page, action, _named(page), "refused", "not allowed")
            why = "The dashboard is read-only." if self._house.options.read_only else f"You may not {action.value}."
            raise Refused(403, "Not allowed", why)
        try:
            done = await _within(TIME_LIMITS[action], act(page))
        except Again as again:
            await self._write(page, action, _named(page), "failed", again.said)
            return again.response
        except Refused as refused:
            await self._write(page, action, _named(page), "failed", refused.detail or refused.title)
            raise
        except Exception as error:  # noqa: BLE001 - said where the button was
            said = describe(error)
            await self._write(page, action, _named(page), "failed", said)
            return page.back(said, is_bad=True)
        await self._write(page, action, done.target, "done", done.said)
        return page.back(done.said, to=done.to)

    async def _write(
        self, page: Page, action: Action, target: dict[str, object], outcome: Outcome, detail: str
    ) -> None:
        client = page.request.client
        host = None if client is None else client.host
        audit = Audit(datetime.now(UTC), page.user, action, target, outcome, detail, host)
        await write(audit, self._house.options.on_action)

    def _sorry(self, request: Request, refused: Refused) -> Response:
        root = root_of(request)
        context = {
            "title": self._house.options.title,
            "refused": refused,
            "home": f"{root}/",
            "asset": lambda name: root + rendering.address(name),
        }
        return HTMLResponse(render("refused.html", context), refused.status, refused.headers)


async def _within(seconds: float, doing: Awaitable[Done]) -> Done:
    """What an action did, unless it took too long: then its statement is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await doing
    except TimeoutError as error:
        if not limit.expired():
            raise
        msg = (
            f"Stopped: it took longer than {seconds:g} seconds. Somebody may hold a lock on it: Health names who. "
            "Look whether it happened before you press again."
        )
        raise InvalidOption(msg) from error


def _named(page: Page) -> dict[str, object]:
    """What a form was about, as it said it; bodies and headers stay out of the audit."""
    hidden = {"csrf", "back", "body", "headers"}
    return {name: value[:200] for name, value in page.form.items() if name not in hidden}


def _check_method(request: Request, method: str) -> None:
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise Refused(405, "Not this way", f"This address takes {method}.", {"allow": method})


def make_dashboard(
    source: "OutboxBroker | AsyncEngine",
    *,
    table: Table | None = None,
    dlq_table: Table | None = None,
    log_tables: LogTables | None = None,
    inbox_table: Table | None = None,
    auth: Auth | None = None,
    can: Can | None = None,
    read_only: bool = False,
    redact: Redact | None = None,
    on_action: OnAction | None = None,
    trace_url: str | None = None,
    title: str = "Outbox",
    late_after: float = OLD_SECONDS,
    timeout: float = TIMEOUT,
) -> Dashboard:
    """An ASGI application that shows queues and topics, and lets operators act on them.

    source: a broker of this process, or an engine; a role that may only read is enough for all screens.
    table: with an engine, the queues' table, or None.
    dlq_table: with an engine, the dead letters' table, or None.
    log_tables: with an engine, the topics' tables, or None.
    inbox_table: the receipts' table, or None.
    auth: `(request) -> user | None`, BasicAuth or BearerAuth; None lets in whoever sits at this machine and has the
        one-time token of the log, and nobody else.
    can: `(user, action) -> bool`; None allows everything to whoever is let in.
    read_only: True leaves all actions out.
    redact: takes out of bodies, headers and errors what must not be seen; see hide_fields.
    on_action: called with an `Audit` for each action and each refusal, besides the log.
    trace_url: the address of a trace, with `{trace_id}`, `{correlation_id}` … in it.
    title: stands above all screens.
    late_after: seconds after which a message that waits is shown in red.
    timeout: seconds that one question to the database may take.
    """
    options = Options(title, checked_flag("read_only", read_only), can, redact, on_action, trace_url, late_after)
    made = source_of(source, Tables(table, dlq_table, log_tables, inbox_table), timeout=timeout)
    return Dashboard(House(made, options, Monitor(made), Replays()), auth)


HOST, PORT = "127.0.0.1", 8710


def serve(dashboard: Dashboard, host: str = HOST, port: int = PORT) -> None:
    """Answer until Ctrl-C. Without auth only on this machine, under an address with a token that works once.

    dashboard: from make_dashboard.
    host: the address to bind; another one than a loopback address needs a dashboard with auth=.
    port: the port to bind.
    """
    import uvicorn

    check_host(dashboard, host)
    print(f"Dashboard: {address_of(dashboard, host, port)}", file=sys.stderr, flush=True)  # noqa: T201 - it is for whoever started it
    # The address has the token in it once, and paths have names of queues: neither belongs into an access log.
    uvicorn.run(dashboard, host=host, port=port, log_level="warning", access_log=False, server_header=False)


def check_host(dashboard: Dashboard, host: str) -> None:
    """Refuse to show an open dashboard to others."""
    if dashboard.one_time is not None and not is_loopback(host):
        msg = (
            f"Without auth the dashboard is served on this machine only, not on {host!r}. "
            "Pass auth=BasicAuth({'name': 'password'}) to make_dashboard, or serve it on 127.0.0.1."
        )
        raise InvalidOption(msg)


def address_of(dashboard: Dashboard, host: str, port: int) -> str:
    """What to open in a browser."""
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    return f"{base}/" if dashboard.one_time is None else dashboard.one_time.address(base)
