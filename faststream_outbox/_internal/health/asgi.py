"""`/live`, `/ready` and `/health` as ASGI applications: for `AsgiFastStream(asgi_routes=…)` and whatever serves ASGI.

200 means yes and 503 no, with the reasons as JSON. They answer GET and HEAD, within a second.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from faststream_outbox._internal.health.health import TIMEOUT, Checks, Health, checks_of
from faststream_outbox._internal.options import check_seconds, check_text
from faststream_outbox.errors import InvalidOption

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
