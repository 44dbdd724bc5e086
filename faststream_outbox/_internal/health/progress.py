"""What the loops of a process show of themselves: which of them hang, and what works less well than it should.

A loop hangs if it has neither moved on nor said that it rests for longer than a step of it can take. A handler that
runs for hours is none of that, nor is a paused queue, nor a database that is away: the loops go on trying. Looked at
are the `Parts` that a broker, a client or an `Outbox` has: the clients of both engines, and relays. Only reads; called
by `health`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from faststream_outbox._internal.connections.dedicated import Connection
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import MOST_UNSETTLED
from faststream_outbox._internal.service import Service
from faststream_outbox._internal.wakeup.listener import Listener
from faststream_outbox.errors import InvalidOptionType


class RelayLike(Protocol):
    """As much of a relay as is looked at."""

    name: str

    @property
    def is_degraded(self) -> bool:
        """Whether a broker that it sends to does not answer, or was not started."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process runs. `relays` are those of a broker."""

    client: OutboxClient | None = None
    log: LogClient | None = None
    relays: Callable[[], Sequence[RelayLike]] = tuple

    @property
    def connections(self) -> Iterator[Connection]:
        """Connections of the loops."""
        for part in (self.client, self.log):
            if part is not None:
                yield from part.connections

    @property
    def services(self) -> Iterator[Service]:
        """Loops that should run now."""
        if self.client is not None and self.client.workers:
            yield from self.client.services
        if self.log is not None and self.log.members:
            yield from self.log.services


def parts_of(source: Any) -> Parts:
    """The parts of an `OutboxClient`, a `LogClient` or an `Outbox`."""
    if isinstance(source, OutboxClient):
        return Parts(client=source)
    if isinstance(source, LogClient):
        return Parts(log=source)
    if isinstance(source, Outbox):
        return Parts(log=source.client)
    msg = f"Ask for the health of a broker, an OutboxClient or an Outbox, not of {type(source).__name__}."
    raise InvalidOptionType(msg)


GRACE_SECONDS = 10.0
"""What fails for less than this comes and goes, as during a restart of the server."""
BUSY_SECONDS = 600.0
"""Handlers that have all been at the same message for so long leave nobody for the next one."""
LOOK_AGAIN_SECONDS = 0.1
"""After a process stood still, everything is late until each loop has had its turn."""


async def stuck(parts: Parts) -> list[str]:
    """What hangs, in words. Looks twice where it seems so."""
    first = dict(_stuck(parts))
    if not first:
        return []
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return [words for beats, words in _stuck(parts) if beats in first]


def _stuck(parts: Parts) -> Iterator[tuple[tuple[str, int], str]]:
    """By name and number of beats: one that has beaten in between does not hang."""
    now = monotonic()
    for service in parts.services:
        if not service.is_running:
            yield (service.name, -1), f"{service.name} is not running"
        elif service.pulse is not None and (seconds := service.pulse.stuck_for(now)):
            yield (service.name, service.pulse.beats), f"{service.name} has not moved on for {seconds:.0f} s"
    for worker in () if parts.client is None else parts.client.workers:
        if seconds := worker.stuck_for(now):
            yield (worker.name, -1), f"{worker.name}: messages have waited for a free handler for {seconds:.0f} s"
    for place, member in enumerate(() if parts.log is None else parts.log.members):
        name = f"{member.name} {place}"
        if not member.is_alive():
            yield (name, -1), f"a member of {member.name} is not running"
        elif seconds := member.pulse.stuck_for(now):
            yield (name, member.pulse.beats), f"a member of {member.name} has not moved on for {seconds:.0f} s"


def degraded(parts: Parts) -> list[str]:
    """What works less well than it should, in words."""
    return [*_of_queues(parts), *_of_topics(parts), *_of_relays(parts)]


def _of_queues(parts: Parts) -> Iterator[str]:
    client = parts.client
    if client is None or not client.workers:
        return
    now, loop_now = monotonic(), asyncio.get_running_loop().time()
    if client.listener is not None:
        yield from _deaf(client.listener, "queues", now)
    for outage in client.outages:
        yield from _failing(outage.role, outage.since, loop_now)
    settler = client.settler
    yield from _failing("settle", settler.outage_since, loop_now)
    waiting = settler.waiting_since
    if settler.backlog >= MOST_UNSETTLED or (waiting is not None and now - waiting > GRACE_SECONDS):
        yield f"settling is behind: {settler.backlog} outcomes are not written"
    for worker in client.workers:
        if worker.recovering:
            yield f"{worker.name}: {worker.recovering} executors recover from a crash"
        if (busy := worker.busy_for(now)) > BUSY_SECONDS:
            yield f"{worker.name}: every handler has been at the same message for {busy:.0f} s"


def _of_topics(parts: Parts) -> Iterator[str]:
    log = parts.log
    if log is None or not log.members:
        return
    now, loop_now = monotonic(), asyncio.get_running_loop().time()
    if log.listener is not None:
        yield from _deaf(log.listener, "topics", now)
    for outage in log.outages:
        yield from _failing(outage.role, outage.since, loop_now)
    for name in dict.fromkeys(member.name for member in log.members):
        began = [member.handling_since for member in log.members if member.name == name]
        busy = min(0.0 if at is None else now - at for at in began)
        if busy > BUSY_SECONDS:
            yield f"{name}: every member has been at the same batch for {busy:.0f} s"


def _of_relays(parts: Parts) -> Iterator[str]:
    for relay in parts.relays():
        if relay.is_degraded:
            yield f"relay {relay.name}: the broker that it sends to does not answer"


def _deaf(listener: Listener, what: str, now: float) -> Iterator[str]:
    since = listener.deaf_since
    if since is not None and now - since > GRACE_SECONDS:
        yield f"LISTEN for {what} does not hear; polling fills in"


def _failing(role: str, since: float | None, now: float) -> Iterator[str]:
    if since is not None and now - since > GRACE_SECONDS:
        yield f"statements for {role} have failed for {now - since:.0f} s"
