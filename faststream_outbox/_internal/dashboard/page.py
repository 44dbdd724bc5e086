"""One request, as a screen sees it: who asks, what may be done, what to ask, and how to answer.

Made by `dashboard` for each request that was let in.
"""

import base64
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from faststream_outbox._internal.dashboard import rendering
from faststream_outbox._internal.dashboard.actions import READING, Action, Options
from faststream_outbox._internal.dashboard.auth import name_of
from faststream_outbox._internal.dashboard.guard import FIELD, FLASH, Visitor, cookie_name, root_of, set_cookie
from faststream_outbox._internal.dashboard.monitor import Monitor
from faststream_outbox._internal.dashboard.rendering import render
from faststream_outbox._internal.dashboard.replays import Replays
from faststream_outbox._internal.dashboard.source import describe
from faststream_outbox._internal.operator import Operator

T = TypeVar("T")

LONGEST_FLASH = 1000


@dataclass(frozen=True, slots=True)
class House:
    """What all requests of a dashboard share."""

    source: Operator
    options: Options
    monitor: Monitor
    replays: Replays


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question gave, or why it gave nothing."""

    value: Any
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did: for the audit, and for whoever pressed the button."""

    said: str
    target: dict[str, object]
    to: str | None = None
    """Where to go on; None is back to the page that the form was on."""


class Again(Exception):
    """A form that cannot be used as it is: nothing was done, and it is shown again with what was typed."""

    def __init__(self, said: str, response: Response) -> None:
        super().__init__(said)
        self.said, self.response = said, response


@dataclass(slots=True)
class Page:
    """A request that was let in."""

    request: Request
    house: House
    visitor: Visitor
    allowed: frozenset[Action]

    @property
    def source(self) -> Operator:
        """Questions and calls."""
        return self.house.source

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of a POST."""
        return self.visitor.form

    @property
    def user(self) -> str:
        """Who asks."""
        return name_of(self.visitor.user)

    def query(self, name: str) -> str | None:
        """A field of the address; None where it is missing or empty."""
        return self.request.query_params.get(name) or None

    def may(self, action: Action) -> bool:
        """Whether this user may do that."""
        return action in self.allowed

    async def ask(self, asked: Awaitable[T]) -> Answer:
        """An answer, or what to say instead: one question that fails does not take the screen with it."""
        try:
            return Answer(await asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said on the screen
            return Answer(None, describe(error))

    def url(self, path: str, /, **fields: object) -> str:
        """An address of ours; what is None or empty is left out."""
        said = {name: value for name, value in fields.items() if value not in (None, "")}
        return root_of(self.request) + path + (f"?{urlencode(said, quote_via=quote, doseq=True)}" if said else "")

    def render(self, template: str, **context: Any) -> Response:
        """A page of this template."""
        options, source = self.house.options, self.source
        flash = _read_flash(self.request)
        sample = self.house.monitor.latest
        common = {
            "title": options.title,
            "user": self.user,
            "csrf_field": FIELD,
            "csrf_token": self.visitor.token,
            "may": {action.value for action in self.allowed},
            "is_read_only": not self.allowed - READING,
            "url": self.url,
            "asset": lambda name: root_of(self.request) + rendering.address(name),
            "here": self.url(self.path or "/", **self._said()),
            "path": self.path,
            "now": datetime.now(UTC),
            "flash": flash,
            "late_after": options.late_after,
            "has": {
                "queues": source.tables.table is not None,
                "dead": source.tables.dlq_table is not None,
                "topics": source.tables.log_tables is not None,
                "relays": source.broker is not None,
            },
            "badges": badges(self.house) if sample is not None else {},
        }
        response = HTMLResponse(render(template, common | context))
        if flash is not None:
            response.delete_cookie(cookie_name(FLASH, self.request), path=f"{root_of(self.request)}/")
        return response

    def _said(self) -> dict[str, list[str]]:
        """The fields of the address that belong to it, also when it is asked for again."""
        query = self.request.query_params
        return {name: query.getlist(name) for name in query if name not in ("again", "token")}

    @property
    def path(self) -> str:
        """The path below the place where the dashboard is mounted."""
        return route_path(self.request)

    def back(self, said: str, *, is_bad: bool = False, to: str | None = None) -> Response:
        """Return to the page that the form was on, or to another one, with a line that says what happened."""
        target = to or self.form.get("back", "")
        root = root_of(self.request)
        # A path of ours and nothing else: no other host, and no line of its own in the header.
        is_ours = target.startswith(f"{root}/") and not target.startswith("//") and "\\" not in target
        if not is_ours or not target.isprintable():
            target = f"{root}/"
        response = RedirectResponse(target, status_code=303)
        text = json.dumps({"text": rendering.visible(said[:LONGEST_FLASH]), "bad": is_bad})
        set_cookie(response, self.request, FLASH, base64.urlsafe_b64encode(text.encode()).decode(), max_age=60)
        return response


def route_path(request: Request) -> str:
    """A request's path below the place where the dashboard is mounted."""
    path, root = str(request.scope["path"]), root_of(request)
    return path[len(root) :] if root and path.startswith(root) else path


def _read_flash(request: Request) -> dict[str, Any] | None:
    cookie = request.cookies.get(cookie_name(FLASH, request))
    if cookie is None or len(cookie) > 8 * LONGEST_FLASH:
        return None
    try:
        said = json.loads(base64.urlsafe_b64decode(cookie))
        return {"text": str(said["text"]), "bad": bool(said["bad"])}
    except (ValueError, TypeError, KeyError):
        return None


def badges(house: House) -> dict[str, int]:
    """The numbers beside the screens' names: only of what is wrong."""
    sample = house.monitor.latest
    found = {
        "/failures": sum(queue.dead for queue in sample.queues) if sample is not None else 0,
        "/keys": sum(group.parked for group in sample.groups) if sample is not None else 0,
        "/health": sum(finding.severity in ("warning", "critical") for finding in house.monitor.findings),
    }
    broker = house.source.broker
    if broker is not None:
        found["/relays"] = sum(relay.is_degraded for relay in broker.relays)
    return {path: count for path, count in found.items() if count}
