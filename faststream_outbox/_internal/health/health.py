"""The health of a process: live, ready, degraded, each with its reasons.

`live`: no loop hangs; if one does, restart the process. `ready`: the database answers and has the tables. `degraded`:
it works, and less well than it should. Cheap, and answered within the time given, whatever the database does.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from faststream_outbox._internal.health.parts import Parts, parts_of
from faststream_outbox._internal.health.progress import degraded, stuck
from faststream_outbox._internal.health.readiness import Found, Readiness
from faststream_outbox._internal.options import check_seconds

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
