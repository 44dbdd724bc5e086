"""Where no auth was given: whoever sits at this machine, with a token that works once.

The token stands in an address that is printed, or logged when somebody comes without one. It is exchanged for a cookie
and then worth nothing. Only requests from a loopback address, to a loopback name, and through no proxy are heard: a
page of somebody else whose name was pointed at 127.0.0.1 is not. Made by `make_dashboard`.
"""

import hmac
import ipaddress
import logging
from secrets import token_urlsafe

from starlette.requests import Request

from faststream_outbox._internal.dashboard.auth import User

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
