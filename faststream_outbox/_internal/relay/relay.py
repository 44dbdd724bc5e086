"""A relay: workers of the engines whose handler sends to another broker, started and stopped with the outbox broker.

It begins when the broker that it sends to runs, in whatever order they are started. Nothing of claiming, leasing or
settling is done here. `make_relay` makes it of the arguments of `broker.relay`, and refuses what cannot work. Called by
brokers and routers.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.options import MAX_DEFERRED
from faststream_outbox._internal.log.sharing.slots import Group, checked_group, checked_uri
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.options import checked_queues
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.relay.gate import open_then
from faststream_outbox._internal.relay.line import Line
from faststream_outbox._internal.relay.options import RelayOptions
from faststream_outbox._internal.relay.target import (
    SEPARATOR,
    scheme_of,
    transport_to,
    transports_by_scheme,
    weakness_of,
)
from faststream_outbox._internal.relay.transport import Transport, wrapping
from faststream_outbox._internal.service import Service, retrying
from faststream_outbox.errors import BrokerUnavailable, InvalidOption, InvalidOptionType

Engines = tuple[OutboxClient, Callable[[], LogClient]]
"""The queue engine's client, and what gives the log engine's one."""
Sources = tuple[tuple[str, ...], Line]
"""Queues or topics, and the line that they are sent through."""


class Relay:
    """What one call of `broker.relay` has made."""

    def __init__(self, name: str, sources: Sequence[Sources], options: RelayOptions, group: str | None = None) -> None:
        self.name = name
        self.group = group
        self.options = options
        self.prefix: Callable[[], str] = str
        """What routers put before the names of queues and topics."""
        self._sources = sources
        self._runs: list[_Run] = []

    @property
    def queues(self) -> tuple[str, ...]:
        """What it reads: queues, or topics."""
        prefix = self.prefix()
        return tuple(f"{prefix}{name}" for names, _ in self._sources for name in names)

    def readings(self) -> list[tuple[tuple[str, ...], Line, bool]]:
        """What each line reads, with prefixes, and whether it runs and its broker was started."""
        prefix = self.prefix()
        ready = {run.line: run.is_ready for run in self._runs}
        return [
            (tuple(f"{prefix}{name}" for name in names), line, ready.get(line, False)) for names, line in self._sources
        ]

    @property
    def lines(self) -> list[Line]:
        """One for each transport."""
        return [line for _, line in self._sources]

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped."""
        return bool(self._runs)

    @property
    def is_degraded(self) -> bool:
        """Whether it runs and a broker that it sends to does not answer, or was not started."""
        return self.is_running and not all(run.is_ready and run.line.circuit.is_closed for run in self._runs)

    @property
    def in_flight(self) -> int:
        """Messages that are being sent."""
        return sum(line.in_flight for line in self.lines)

    async def start(self, engines: Engines, graceful_timeout: float | None = 15.0) -> None:
        """Begin to relay as soon as the brokers run that it sends to, unless it does so already."""
        if self._runs:
            return
        client, log = engines
        prefix = self.prefix()
        for names, line in self._sources:
            read = tuple(f"{prefix}{name}" for name in names)
            worker: Worker | LogWorker
            if self.group is None:
                options = self.options.of_queue(graceful_timeout)
                worker = Worker(
                    client.engine, client.table, read, line.handle, client=client, name=self.name, options=options
                )
            else:
                worker = LogWorker(
                    log(),
                    [Group(self.group, topic) for topic in read],
                    line.handle,
                    options=self.options.of_topic(),
                    members=self.options.batches,
                    batch=True,
                    name=self.name,
                )
            self._runs.append(_Run(line, worker, client.events))
        await asyncio.gather(*(run.start() for run in self._runs))

    async def stop(self, timeout: float | None = None) -> None:
        """Let what is being sent be confirmed, give back what waits, and send no more."""
        runs, self._runs = self._runs, []
        await asyncio.gather(*(run.stop(timeout or 0.0) for run in runs))

    def leave(self) -> None:
        """Forget what ran in an event loop that has ended."""
        self._runs = []


class _Run:
    """A line and its worker, from a start to a stop."""

    def __init__(self, line: Line, worker: Worker | LogWorker, emitter: Events) -> None:
        self.line = line
        self.is_ready = False
        self._worker = worker
        self._events = emitter
        self._opening: Service | None = None

    async def start(self) -> None:
        """Open the line at once if that is possible, else as soon as it is."""
        self.line.begin(self._events)
        if self.line.is_open and getattr(self.line.transport, "is_started_by_others", False):
            await self._open()
        else:
            self._opening = Service(f"outbox start of {self.line.relay}", self._open, self._crashed)
            self._opening.start()

    async def _open(self) -> None:
        await open_then(self.line.opened, self._late, self._begin)

    def _late(self) -> None:
        line = self.line
        if not line.circuit.is_over:
            line.circuit.suspect(BrokerUnavailable(getattr(line.transport, "missing", "it was not started")))

    async def _begin(self) -> None:
        line = self.line
        await retrying(line.transport.start, lambda error, _: line.circuit.suspect(error))
        if not line.circuit.is_closed:
            line.circuit.answered()
        await self._worker.start()
        self.is_ready = True

    def _crashed(self, name: str, error: BaseException) -> None:
        self._events.emit(events.LoopCrashed(name, error))

    async def stop(self, timeout: float) -> None:
        """End the waiting, then the sending, then the transport."""
        self.line.circuit.end()
        if self._opening is not None:
            await self._opening.stop()
        await self._worker.stop(timeout)
        await self.line.transport.stop()


Names = str | list[str] | tuple[str, ...]


def make_relay(
    queues: Names, topic: Names | None, group: str | None, to: object, name: str | None, options: RelayOptions
) -> Relay:
    """The relay, or an error that says what to do."""
    if isinstance(to, Mapping):
        return _by_scheme(queues, topic, group, to, name, options)
    if topic is None:
        _check_queue(queues, group, options)
        names = checked_queues(queues)
    else:
        names = _checked_topics(queues, topic, group, options)
    transport = transport_to(to)
    known_as = name or f"relay of {', '.join(names)}"
    line = _line(known_as, transport, group, options)
    return Relay(known_as, [(names, line)], options, group)


def _line(name: str, transport: Transport, group: str | None, options: RelayOptions) -> Line:
    wrap = wrapping(options.envelope, str(getattr(transport, "name", "")))
    return Line(name, transport, group=group, ordered=options.ordered, on_dead=options.on_dead, wrap=wrap)


def weaknesses(relay: Relay) -> list[str]:
    """How what it sends may be lost, and what to do."""
    return [said for line in relay.lines if (said := weakness_of(line.transport)) is not None]


def _by_scheme(
    queues: Names,
    topic: Names | None,
    group: str | None,
    to: Mapping[Any, Any],
    name: str | None,
    options: RelayOptions,
) -> Relay:
    transports = transports_by_scheme(to)
    if topic is None and not queues:
        topic = [f"{scheme}{SEPARATOR}" for scheme in transports]
    if topic is None:
        msg = "A mapping of schemes is for topics, whose URIs say where to: relay(topic='kafka://', group='out', to=…)."
        raise InvalidOption(msg)
    topics = _checked_topics(queues, topic, group, options)
    by_scheme: dict[str, list[str]] = {}
    for one in topics:
        scheme = scheme_of(one)
        if scheme is None:
            msg = f"Topic {one!r} has no scheme: publish to 'kafka://orders', and relay topic='kafka://'."
            raise InvalidOption(msg)
        if scheme not in transports:
            known = ", ".join(map(repr, transports))
            msg = f"Nobody takes {scheme}://: to= has {known} only. Add to={{{scheme!r}: …}}."
            raise InvalidOption(msg)
        by_scheme.setdefault(scheme, []).append(one)
    # A line for each: a broker that is down holds up its own scheme only.
    sources: list[Sources] = []
    known_as = name or f"relay of {', '.join(topics)}"
    for scheme, its in by_scheme.items():
        sources.append((tuple(its), _line(known_as, transports[scheme], group, options)))
    return Relay(known_as, sources, options, group)


def _check_queue(queues: object, group: object, options: RelayOptions) -> None:
    if not isinstance(queues, str | list | tuple) or not queues:
        msg = (
            "A relay needs to know what to read: relay('orders', to=…), or relay(topic='shop', group='to-kafka', to=…)."
        )
        raise InvalidOption(msg)
    if group is not None:
        msg = f"group={group!r} is for topics: relay(topic=…, group={group!r}, to=…). Processes share a queue anyway."
        raise InvalidOption(msg)
    for name, value, usual in (
        ("start", options.start, "earliest"),
        ("max_deferred", options.max_deferred, MAX_DEFERRED),
    ):
        if value != usual:
            msg = f"{name}={value!r} is for topics. Leave it out."
            raise InvalidOption(msg)


def _checked_topics(queues: object, topic: object, group: object, options: RelayOptions) -> tuple[str, ...]:
    if queues:
        msg = f"A relay reads queues ({queues!r}) or a topic ({topic!r}), not both: register two."
        raise InvalidOption(msg)
    if group is None:
        msg = f"A relay of a topic needs a group: relay(topic={topic!r}, group='to-kafka', to=…). Each reads all."
        raise InvalidOptionType(msg)
    if options.linger:
        msg = "linger means nothing for a topic: a batch is what is there. Leave it out."
        raise InvalidOption(msg)
    checked_group(group)
    given: Sequence[object] = topic if isinstance(topic, list | tuple) else [topic]
    if not given:
        msg = "A list of topics has at least one: relay(topic=['orders', 'returns'], group='to-kafka', to=…)."
        raise InvalidOption(msg)
    return tuple(checked_uri(one, "topic") for one in given)
