"""The door: who comes in, which forms are heard, and what every answer carries.

Closed unless an auth lets somebody in. Browsers add the credentials of basic auth, and cookies, to whatever another
site makes them send. So what changes something must be a POST from the same origin, and must know a token that only our
pages were given. No state on the server: any process may answer. The headers of every answer allow a browser little: no
script, style or picture but our own files; in no frame; no form to elsewhere; nothing kept by caches. Nothing below the
door asks again who somebody is. Used by `dashboard` for each request.
"""

import hmac
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from faststream_outbox._internal.dashboard.auth import Auth, OneTimeToken

FIELD = "csrf"
HEADER = "x-csrf-token"
LENGTH = 43
"""Characters of a token."""


def new_token() -> str:
    """Something that nobody guesses."""
    return token_urlsafe(32)


def is_token(text: str | None) -> bool:
    """Whether a cookie has the form of a token."""
    return text is not None and len(text) == LENGTH and text.isascii()


def refusal(request: Request, cookie: str | None, given: str | None) -> str | None:
    """Why a request that changes something is not heard; None if a page of ours sent it."""
    if not _is_same_origin(request):
        return "The browser says that another site sent this."
    if cookie is None or given is None or not is_token(cookie):
        return "The form has no token: load the page again, and allow its cookies."
    if not hmac.compare_digest(cookie.encode(), given.encode("utf-8", "surrogatepass")):
        return "The form's token is an old one: load the page again."
    return None


def _is_same_origin(request: Request) -> bool:
    said = request.headers.get("sec-fetch-site")
    if said is not None:
        # Browsers compare themselves, also behind a proxy that changes the host.
        return said == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return False
    return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower() != ""


CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

ALWAYS: Mapping[str, str] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

NOT_KEPT = "no-store"
"""Pages may show bodies."""
KEPT = "public, max-age=31536000, immutable"
"""Of static files, whose addresses change with what is in them."""


LARGEST_FORM = 1024 * 1024
MOST_FIELDS = 2000
FORM = "application/x-www-form-urlencoded"
SESSION, CSRF, FLASH = "outbox_session", "outbox_csrf", "outbox_flash"


class Refused(Exception):
    """A request that is not heard; answered with a page that says why."""

    def __init__(self, status: int, title: str, detail: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(title)
        self.status, self.title, self.detail, self.headers = status, title, detail, dict(headers or {})


@dataclass(slots=True)
class Visitor:
    """Somebody who was let in, and the token of their forms."""

    user: Any
    token: str
    form: Mapping[str, str] = field(default_factory=dict[str, str])
    selected: tuple[str, ...] = ()
    """The values of the field `id`, which a form may have many times."""


class Guard:
    """Lets requests in, or does not."""

    def __init__(self, auth: Auth | OneTimeToken) -> None:
        self._auth = auth

    async def admit(self, request: Request) -> Visitor | Response:
        """The visitor, or an answer to send instead; raises `Refused`."""
        auth = self._auth
        user = self._at_this_machine(request, auth) if isinstance(auth, OneTimeToken) else auth(request)
        if inspect.isawaitable(user):
            user = await user
        if isinstance(user, Response):
            return user
        if user is None:
            challenge: str | None = getattr(auth, "challenge", None)
            headers = {} if challenge is None else {"www-authenticate": challenge}
            raise Refused(401, "Who are you?", "The dashboard is for those who were let in.", headers)
        cookie = request.cookies.get(cookie_name(CSRF, request))
        token = cookie if cookie is not None and is_token(cookie) else new_token()
        visitor = Visitor(user, token)
        if request.method == "POST":
            await self._hear(request, visitor, cookie)
        return visitor

    def _at_this_machine(self, request: Request, auth: OneTimeToken) -> Any:
        why = auth.refusal(request)
        if why is not None:
            detail = f"{why} This dashboard has no auth, so it answers only on the machine where it runs. Pass auth=…"
            raise Refused(403, "Not from here", detail)
        given = request.query_params.get("token")
        if given is not None:
            session = auth.exchange(given)
            if session is None:
                auth.announce(request)
                detail = "The token was used already, or is not the one. The log of the process has the next one."
                raise Refused(401, "This address worked once", detail)
            answer = RedirectResponse(f"{root_of(request)}/", status_code=303)
            set_cookie(answer, request, SESSION, session)
            return answer
        user = auth.user(request.cookies.get(cookie_name(SESSION, request)))
        if user is None:
            auth.announce(request)
            detail = "Open the address with the token that the log of the process has."
            raise Refused(401, "A token is needed", detail)
        return user

    async def _hear(self, request: Request, visitor: Visitor, cookie: str | None) -> None:
        """Read a form, if a page of ours sent it."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise Refused(415, "Not a form", f"What changes something is sent as {FORM}.")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_FORM:
                raise Refused(413, "Too much", f"A form has at most {LARGEST_FORM // 1024} kB.")
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise Refused(400, "Not a form", "It could not be read.") from None
        visitor.form = dict(pairs)
        visitor.selected = tuple(value for name, value in pairs if name == "id")
        given = request.headers.get(HEADER) or visitor.form.get(FIELD)
        why = refusal(request, cookie, given)
        if why is not None:
            raise Refused(403, "Not heard", why)


def finish(response: Response, request: Request, visitor: Visitor | None) -> Response:
    """Put on what every answer carries."""
    for name, value in ALWAYS.items():
        response.headers[name] = value
    response.headers.setdefault("cache-control", NOT_KEPT)
    if visitor is not None and request.cookies.get(cookie_name(CSRF, request)) != visitor.token:
        set_cookie(response, request, CSRF, visitor.token)
    return response


def root_of(request: Request) -> str:
    """Where the dashboard is mounted, without a slash at the end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def cookie_name(name: str, request: Request) -> str:
    """Browsers share the cookies of all ports of a host: dashboards on two of them keep theirs apart."""
    port = request.url.port
    return name if port is None else f"{name}_{port}"


def set_cookie(response: Response, request: Request, name: str, value: str, *, max_age: int | None = None) -> None:
    """A cookie that no script reads and no other site sends."""
    response.set_cookie(
        cookie_name(name, request),
        value,
        max_age=max_age,
        path=f"{root_of(request)}/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
