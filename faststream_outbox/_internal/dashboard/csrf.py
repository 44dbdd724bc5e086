"""That a form was sent by a page of ours: a token in a cookie and in the form, and what the browser says of its origin.

Browsers add the credentials of basic auth, and cookies, to whatever another site makes them send. So what changes
something must come from the same origin, and must know what only our pages were given. No state on the server: any
process may answer. Called by `guard`.
"""

import hmac
from secrets import token_urlsafe
from urllib.parse import urlsplit

from starlette.requests import Request

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
