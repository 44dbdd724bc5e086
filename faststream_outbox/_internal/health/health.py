"""The health of a process: live, ready, degraded, each with its reasons; and routes that say so.

`live`: no loop hangs; if one does, restart the process. `ready`: the database answers and has the tables. `degraded`:
it works, and less well than it should. Cheap, and answered within the time given, whatever the database does.

`/live`, `/ready` and `/health` are ASGI applications, for `AsgiFastStream(asgi_routes=…)` and whatever serves ASGI. 200
means yes and 503 no, with the reasons as JSON. They answer GET and HEAD, within a second. Called by applications, by
the broker, and by the routes of FastAPI.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from faststream_outbox._internal.health.progress import Parts, degraded, parts_of, stuck
from faststream_outbox._internal.health.readiness import Found, Readiness
from faststream_outbox._internal.options import check_seconds, check_text
from faststream_outbox.errors import InvalidOption

TIMEOUT = 0.8
"""Seconds: a probe of Kubernetes gives up after one."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a process is."""

    live: bool
    ready: bool
    stuck: tuple[str, ...] = ()
    """Why it is not live."""
    unready: tuple[str, ...] = ()
    """Why it is not ready."""
    degraded: tuple[str, ...] = ()
    """What works less well than it should."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON wants it."""
        return {
            "live": self.live,
            "ready": self.ready,
            "stuck": list(self.stuck),
            "unready": list(self.unready),
            "degraded": list(self.degraded),
        }


class Checks:
    """Looks after one broker or client. `parts` is None where there is no database, as in tests: all is well then."""

    def __init__(self, parts: Parts | None) -> None:
        self._parts = parts
        has_database = parts is not None and (parts.client is not None or parts.log is not None)
        self._readiness = Readiness(parts) if parts is not None and has_database else None

    async def live(self) -> Health:
        """Whether the loops move on; asks nobody."""
        hanging = await self._stuck()
        return Health(live=not hanging, ready=True, stuck=hanging)

    async def health(self, timeout: float | None = TIMEOUT) -> Health:
        """All of it."""
        if timeout is not None:
            check_seconds("timeout", timeout, zero=True)
        if self._parts is None:
            return Health(live=True, ready=True)
        found, hanging = Found(("there is no database",)), await self._stuck()
        if self._readiness is not None:
            found = await self._readiness.ask(timeout)
        return Health(
            live=not hanging,
            ready=not found.unready,
            stuck=hanging,
            unready=found.unready,
            degraded=(*degraded(self._parts), *found.degraded),
        )

    async def _stuck(self) -> tuple[str, ...]:
        return tuple(await stuck(self._parts)) if self._parts is not None else ()

    def begin(self) -> None:
        """Find out about the tables in the background; that they do not fit is an event."""
        if self._readiness is not None:
            self._readiness.begin()

    async def close(self) -> None:
        """End what is under way, and close the connection."""
        if self._readiness is not None:
            await self._readiness.close()


@runtime_checkable
class HasChecks(Protocol):
    """A broker."""

    @property
    def checks(self) -> Checks:
        """What looks after it."""
        ...


_checks: WeakKeyDictionary[Any, Checks] = WeakKeyDictionary()


def checks_of(source: Any) -> Checks:
    """What looks after a broker, an `OutboxClient` or an `Outbox`: one for all who ask."""
    if isinstance(source, HasChecks):
        return source.checks
    parts = parts_of(source)
    known = _checks.get(source)
    if known is None:
        known = _checks[source] = Checks(parts)
    return known


async def health(source: Any, *, timeout: float | None = TIMEOUT) -> Health:
    """How a broker, an `OutboxClient` or an `Outbox` is.

    timeout: seconds that the database may take to answer; None waits for as long as it takes to know.
    """
    return await checks_of(source).health(timeout)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = Callable[[Checks], Awaitable[tuple[bool, dict[str, Any]]]]

ANSWERS = ("/live", "/ready", "/health")


def health_routes(source: Any, *, timeout: float = TIMEOUT, prefix: str = "") -> list[tuple[str, Application]]:
    """Paths and applications for a broker, an `OutboxClient` or an `Outbox`.

    timeout: seconds that the database may take to answer.
    prefix: stands before each path.
    """
    check_routes(timeout, prefix)
    return [(f"{prefix}{path}", application(source, path, timeout)) for path in ANSWERS]


def check_routes(timeout: object, prefix: object) -> None:
    """Refuse what can be no timeout, and no beginning of a path."""
    check_seconds("timeout", timeout, zero=True)
    check_text("prefix", prefix)
    if prefix and not str(prefix).startswith("/"):
        msg = f"prefix stands before each path, so it begins with a slash, as in '/outbox': not {prefix!r}."
        raise InvalidOption(msg)


async def answer(source: Any, path: str, timeout: float = TIMEOUT) -> tuple[bool, dict[str, Any]]:
    """Whether all is well as far as `path` asks, and why not."""
    checks = checks_of(source)
    if path == "/live":
        # Without a question to the database: that it is away is no reason to restart anybody.
        alive = await checks.live()
        return alive.live, {"live": alive.live, "stuck": list(alive.stuck)}
    found: Health = await checks.health(timeout)
    if path == "/ready":
        return found.ready, {"ready": found.ready, "unready": list(found.unready)}
    return found.live and found.ready, found.as_dict()


def application(source: Any, path: str, timeout: float) -> Application:
    """The application of one path."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope.get("method", "GET")
        if method not in ("GET", "HEAD"):
            await _send(send, 405, b"", [(b"allow", b"GET, HEAD")])
            return
        is_well, found = await answer(source, path, timeout)
        body = json.dumps(found, ensure_ascii=False).encode() if method == "GET" else b""
        await _send(send, 200 if is_well else 503, body, [(b"content-type", b"application/json")])

    return serve


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"cache-control", b"no-store"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
