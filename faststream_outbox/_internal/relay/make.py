"""From the arguments of `broker.relay` to a relay; what cannot work is refused. Called by brokers and routers."""

from collections.abc import Mapping, Sequence
from typing import Any

from faststream_outbox._internal.log.options import MAX_DEFERRED
from faststream_outbox._internal.log.sharing.slots import checked_group, checked_uri
from faststream_outbox._internal.queue.options import checked_queues
from faststream_outbox._internal.relay.cloudevents import wrapping
from faststream_outbox._internal.relay.line import Line
from faststream_outbox._internal.relay.options import RelayOptions
from faststream_outbox._internal.relay.relay import Relay, Sources
from faststream_outbox._internal.relay.target import transport_to, transports_by_scheme, weakness_of
from faststream_outbox._internal.relay.transport import Transport
from faststream_outbox._internal.relay.uri import SEPARATOR, scheme_of
from faststream_outbox.errors import InvalidOption, InvalidOptionType

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
