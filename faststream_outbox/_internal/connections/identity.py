"""Who we are to the server: the name of each connection of ours, and the worker id that leases begin with.

A client in a process draws eight hexadecimal digits, its worker id, anew after a fork and for another event loop. Its
connections say them in `application_name`, with what they do and where: `outbox 3f2a9c1b claim web-7d9f/4711 billing`
(worker id, role, host, process, and the name that the application gives its own connections; cut where too long). Its
lease tokens and members begin with the same digits, so that who holds a message, and whether that process still
lives, is a join with `pg_stat_activity`. Anybody can give such a name: it is shown, and nothing is decided by it.
Used by `dedicated`, by both engines and by the overview.
"""

import os
import re
import socket
from typing import Literal, NamedTuple
from uuid import UUID

MOST_BYTES = 63
"""What PostgreSQL keeps of an `application_name`."""
ID_DIGITS = 8

Role = Literal[
    "claim",
    "scan",
    "settle",
    "listen",
    "notify",
    "read",
    "tick",
    "operate",
    "clean",
    "guard",
    "overview",
    "other",
]
"""What a connection is for. "read": topics, and what became of their messages. "guard": holds the janitor's lock."""

_NAME = re.compile(
    r"outbox ([0-9a-f]{8}) ([a-z]{1,16}) ([A-Za-z0-9._~-]{1,63})/([0-9]{1,10})(?: ([!-~](?:[ -~]*[!-~])?))?"
)
_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_PRINTABLE = re.compile(r"[^ -~]+")


class ConnectionName(NamedTuple):
    """What a connection of ours says of itself."""

    worker_id: str
    role: str
    host: str
    """Its beginning and its end where it was too long, around a `~`."""
    pid: int
    application: str | None
    """The beginning of what the application calls its own connections."""


def name_of(worker_id: str, role: Role, host: str, pid: int, application: str = "") -> str:
    """An `application_name` that fits."""
    opening, place = f"outbox {worker_id} {role} ", f"/{pid}"
    own = "" if parse_name(application) else _NOT_PRINTABLE.sub("?", application).strip()
    room = MOST_BYTES - len(opening) - len(place)
    shown = _shortened(host, room - min(len(own) + 1, room // 2) if own else room)
    return f"{opening}{shown}{place} {own}"[:MOST_BYTES].rstrip()


def parse_name(application_name: str | None) -> ConnectionName | None:
    """What an `application_name` says, or None if it is not one of ours."""
    found = None if application_name is None else _NAME.fullmatch(application_name)
    return None if found is None else ConnectionName(found[1], found[2], found[3], int(found[4]), found[5])


def _shortened(host: str, room: int) -> str:
    """A host's name in the letters of one; of a long one the ends, which tell the deployment and the pod."""
    plain = _NOT_IN_HOST.sub("-", host) or "-"
    if len(plain) <= room:
        return plain
    tail = (room - 1) // 2
    return f"{plain[: room - 1 - tail]}~{plain[-tail:]}"


def worker_id_of(token: UUID | None) -> str | None:
    """The worker id that a lease's token or a member's id begins with."""
    return None if token is None else token.hex[:ID_DIGITS]


class Identity:
    """One client in one process."""

    __slots__ = ("_pid", "_prefix")

    def __init__(self) -> None:
        self._pid = 0
        self._prefix = b""

    def renew(self) -> None:
        """Be somebody else from the next question on."""
        self._pid = 0

    def _digits(self) -> bytes:
        pid = os.getpid()
        if pid != self._pid:
            # Drawn late: a client may be made before the process forks, and each child is somebody else.
            self._pid, self._prefix = pid, os.urandom(ID_DIGITS // 2)
        return self._prefix

    @property
    def worker_id(self) -> str:
        """Eight hexadecimal digits."""
        return self._digits().hex()

    def token(self) -> UUID:
        """A random UUID that begins with the worker id."""
        return UUID(bytes=self._digits() + os.urandom(12), version=4)

    def name(self, role: Role, application: str = "") -> str:
        """The `application_name` of a connection."""
        return name_of(self.worker_id, role, socket.gethostname(), os.getpid(), application)
