"""Who is asking: a callable that turns a request into a user, two ready-made ones, and a token that works once.

Any callable `(request) -> user | None` will do, also an async one; a `Response` that it returns is sent as it is, for
redirects to a login page. Secrets are compared in constant time.

Where no auth was given, whoever sits at this machine comes in with a token. It stands in an address that is printed, or
logged when somebody comes without one; it is exchanged for a cookie and then worth nothing. Only requests from a
loopback address, to a loopback name, and through no proxy are heard: a page of somebody else whose name was pointed at
127.0.0.1 is not. Called by `guard` for every request but static files.
"""

import base64
import binascii
import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from starlette.requests import Request

from faststream_outbox._internal.options import check_text
from faststream_outbox.errors import InvalidOption, InvalidOptionType

Auth = Callable[[Request], Any | Awaitable[Any]]
"""Gives the user who sent a request, or None, which is answered with 401; with its `challenge`, if it has one, as
`WWW-Authenticate`."""

SHORTEST = 8
"""Characters of a password or a token; shorter ones are guessed."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who was let in; a callable of yours may return any object instead."""

    name: str


def name_of(user: object) -> str:
    """What a user is called on screens and in the audit."""
    if isinstance(user, str):
        return user
    for attribute in ("name", "username", "email"):
        value = getattr(user, attribute, None)
        if isinstance(value, str) and value:
            return value
    return str(user)


class BasicAuth:
    """Names and passwords, which browsers ask for; use it behind TLS only.

    passwords: the password of each user, by name.
    realm: what browsers show when they ask.
    """

    def __init__(self, passwords: Mapping[str, str], *, realm: str = "outbox") -> None:
        _check_texts("BasicAuth", "passwords", passwords)
        _check_secrets("BasicAuth", passwords)
        check_text("realm", realm)
        if not realm.isascii() or not realm.isprintable() or '"' in realm:
            msg = f"realm must be printable ASCII without quotation marks, not {realm!r}."
            raise InvalidOption(msg)
        self._passwords = {name: _hash(password) for name, password in passwords.items()}
        self.challenge: str = f'Basic realm="{realm}", charset="UTF-8"'

    def __call__(self, request: Request) -> User | None:
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        # Somebody unknown takes as long as a wrong password.
        known = hmac.compare_digest(_hash(password), self._passwords.get(name, b""))
        return User(name) if known and colon else None


class BearerAuth:
    """Tokens in the header `Authorization: Bearer …`, as proxies and scripts send it.

    tokens: whose each token is: `{"the token": "the name"}`.
    """

    challenge = "Bearer"

    def __init__(self, tokens: Mapping[str, str]) -> None:
        _check_texts("BearerAuth", "tokens", tokens)
        _check_secrets("BearerAuth", {name: token for token, name in (tokens or {}).items()})
        self._tokens = {_hash(token): name for token, name in tokens.items()}

    def __call__(self, request: Request) -> User | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given, found = _hash(token), None
        # All of them, so that the time says nothing about which one it was.
        for known, name in self._tokens.items():
            if hmac.compare_digest(given, known):
                found = name
        return User(found) if found is not None and scheme.lower() == "bearer" else None


def _hash(secret: str) -> bytes:
    """As long as any other: a comparison would give away how long a secret is."""
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_texts(kind: str, option: str, given: object) -> None:
    if given is not None and not isinstance(given, Mapping):
        msg = f"{kind} takes {option} as a dict of texts, not a {type(given).__name__}."
        raise InvalidOptionType(msg)
    for one in [text for pair in (given or {}).items() for text in pair]:
        if not isinstance(one, str):
            msg = f"{kind} takes {option} as a dict of texts; in it is a {type(one).__name__}."
            raise InvalidOptionType(msg)


def _check_secrets(kind: str, secrets: Mapping[str, str]) -> None:
    if not secrets:
        msg = f"{kind} needs at least one user."
        raise InvalidOption(msg)
    for name, secret in secrets.items():
        if len(secret) < SHORTEST:
            msg = f"The secret of {name!r} is shorter than {SHORTEST} characters: take a longer one."
            raise InvalidOption(msg)


logger = logging.getLogger("faststream_outbox.dashboard")

OPERATOR = User("operator on this machine")
MOST_SESSIONS = 100
_NAMES = {"localhost", "localhost.localdomain"}
_PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is of this machine only."""
    if host is None:
        return False
    bare = host.strip("[]").lower()
    if bare in _NAMES:
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


class OneTimeToken:
    """An auth for one machine, until its process ends."""

    def __init__(self) -> None:
        self._token: str | None = None
        self._is_announced = False
        self._sessions: dict[str, None] = {}

    @property
    def token(self) -> str:
        """The token that works now; the next one, if that was used."""
        if self._token is None:
            self._token, self._is_announced = token_urlsafe(32), False
        return self._token

    def address(self, base: str) -> str:
        """The address to open, which is taken for said."""
        address = f"{base.rstrip('/')}/?token={self.token}"
        self._is_announced = True
        return address

    def refusal(self, request: Request) -> str | None:
        """Why a request is not heard at all; None if it comes from this machine."""
        if any(name in request.headers for name in _PROXIED):
            return "It came through a proxy."
        if request.client is None or not is_loopback(request.client.host):
            return "It came from another machine."
        if not is_loopback(request.url.hostname):
            return "It was sent to a name that is not of this machine."
        return None

    def exchange(self, token: str) -> str | None:
        """A session for the token, which ends with it; None if it is not the one."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        self._token = None
        session = token_urlsafe(32)
        self._sessions[session] = None
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def user(self, session: str | None) -> User | None:
        """Whose session it is."""
        return OPERATOR if session is not None and session in self._sessions else None

    def announce(self, request: Request) -> None:
        """Log an address that works, for somebody who came without one; once for each token."""
        root = request.scope.get("root_path", "")
        address = f"{request.url.scheme}://{request.url.netloc}{root}"
        if not (self._token is not None and self._is_announced):
            logger.warning("The dashboard has no auth, so it is for this machine only: %s", self.address(address))
