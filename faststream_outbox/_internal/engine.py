"""What both engines have in common: the client of one process, and how the end of a message is said.

`EngineClient` has an engine of the application's, which is never closed, connections of its own, and loops that run
while somebody is served. It belongs to one event loop at a time: in another one everything is made anew, unless
somebody is still served in the first. `closing` names the event for every outcome: a new one cannot be forgotten.
Extended by the clients of the queue and of the log; `closing` is called when an outcome is written, and by the test
broker. Knows neither engine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, assert_never

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import STATEMENT_TIMEOUT, DedicatedConnection
from faststream_outbox._internal.connections.identity import Identity, Role
from faststream_outbox._internal.connections.transactions import Isolation
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.emitter import checked_events
from faststream_outbox._internal.events.event_log import Log, write_event_log
from faststream_outbox._internal.outcomes.failure import Renderer, saying
from faststream_outbox._internal.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox._internal.service import Pulse, Service
from faststream_outbox.errors import WrongEventLoop


class EngineClient(ABC):
    """Connections and loops of one engine in one process."""

    ELSEWHERE: ClassVar[str]
    """What is said to whoever comes from a second event loop while somebody is served in the first."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        events: Events | None,
        log: Log | None,
        renderer: Renderer | None,
    ) -> None:
        self.engine = engine
        self.events: Events = checked_events(events)
        if log is not None:
            write_event_log(self.events, log, saying(renderer))
        self.renderer = renderer
        self.identity: Identity = Identity()
        self.isolation: Isolation = Isolation()
        """Of the transactions of handlers."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._services: list[Service] = []
        self._changing = asyncio.Lock()

    def _assemble(self) -> None:
        """Make what belongs to one event loop; extended by what else the engine has."""
        self.identity.renew()
        self._services = []
        self._changing = asyncio.Lock()

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether somebody is served."""

    def _move(self) -> None:
        """Belong to the running event loop: the one before may have ended without a stop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            if self._is_busy() and self._loop.is_running():
                raise WrongEventLoop(self.ELSEWHERE)
            # Connections went with their loop.
            self._assemble()
        self._loop = loop

    def _dedicated(
        self, role: Role, *, timeout: float = STATEMENT_TIMEOUT, lock_seconds: float = 0.0
    ) -> DedicatedConnection:
        return DedicatedConnection(
            self.engine, timeout=timeout, lock_seconds=lock_seconds, identity=self.identity, role=role
        )

    def _serve(self, name: str, loop: Callable[[], Coroutine[Any, Any, None]], pulse: Pulse | None = None) -> None:
        """Have a loop run while somebody is served; its crashes are reported."""
        self._services.append(Service(name, loop, self._crashed, self._restored, pulse))

    @property
    def services(self) -> Sequence[Service]:
        """The loops that run while somebody is served."""
        return tuple(self._services)

    @property
    def is_cancelled(self) -> bool:
        """Whether the loops are being ended from outside, as at the end of `asyncio.run`."""
        return any(service.is_cancelled for service in self._services)

    def open_session(self) -> AsyncSession:
        """A session for a transactional handler, which cannot be used any more once it is closed."""
        return AsyncSession(self.engine, expire_on_commit=False, close_resets_only=False)

    def _crashed(self, name: str, error: BaseException) -> None:
        self.events.emit(events.LoopCrashed(name, error))

    def _restored(self, name: str, seconds: float) -> None:
        self.events.emit(events.LoopRestored(name, seconds))


Closing = events.Handled | events.Retried | events.Died | events.Released
"""What closes a message: of each that was started there is one, unless its lease was lost."""


def closing(
    outcome: FinalOutcome, seconds: float, *, kept: bool, was_started: bool, age: float | None
) -> tuple[type[Closing], dict[str, Any]]:
    """The event that closes a message, and its fields beside those that name the message.

    seconds: how long its handler took.
    kept: whether one that has failed for good is kept.
    was_started: whether its handler had begun.
    age: how long ago it was published, if that is known.
    """
    match outcome:
        case Done() | Settled():
            return events.Handled, {"duration_seconds": seconds, "age_seconds": age}
        case Retry(delay=delay, error=error):
            return events.Retried, {"duration_seconds": seconds, "delay_seconds": delay or 0.0, "error": error}
        case Dead(reason=reason, error=error):
            more = {"duration_seconds": seconds, "reason": reason, "kept": kept, "error": error, "age_seconds": age}
            return events.Died, more
        case Release():
            return events.Released, {"was_started": was_started}
        case _:
            assert_never(outcome)
