"""`relay()`, as brokers and routers have it: messages go on to another broker without a handler.

Kept apart from subscribers: FastStream consumes nothing here, and AsyncAPI documents know nothing of it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal.broker.warn import warn, warn_about_shared
from faststream_outbox._internal.log.options import MAX_DEFERRED, Start
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY, RetryStrategyProto
from faststream_outbox._internal.queue.options import OnDead

if TYPE_CHECKING:
    from faststream_outbox._internal.relay.relay import Relay
    from faststream_outbox._internal.relay.transport import Envelope


class RelayingMixin:
    """What can register relays."""

    @cached_property
    def _own_relays(self) -> "list[Relay]":
        return []

    @property
    def relays(self) -> "list[Relay]":
        """Its relays, and those of the routers that it includes."""
        routers: Any = getattr(self, "routers", ())
        return [*self._own_relays, *(relay for router in routers for relay in router.relays)]

    def relay(
        self,
        queues: str | list[str] | tuple[str, ...] = (),
        *,
        to: object | Mapping[str, Any],
        topic: str | list[str] | tuple[str, ...] | None = None,
        group: str | None = None,
        name: str | None = None,
        batch_size: int = 500,
        max_in_flight: int = 2000,
        linger: float = 0.0,
        ordered: bool = True,
        on_dead: OnDead = "continue",
        retry_strategy: RetryStrategyProto | None = None,
        lease_ttl_seconds: float = 60.0,
        min_fetch_interval: float = 1.0,
        max_fetch_interval: float = 10.0,
        start: Start = "earliest",
        max_deferred: int = MAX_DEFERRED,
        envelope: "Envelope | None" = None,
    ) -> "Relay":
        """Send the messages of a queue, or of a topic as a group, to another broker; each until that has confirmed it.

        queues: the queue's name, or several names.
        to: a publisher of another FastStream broker; an object with `start`, `stop` and `send`; or a mapping from
            URI schemes to brokers, for topics whose URIs say where to.
        topic: a topic instead of queues, or several; needs a group. With a mapping, None is all of its schemes.
        group: who reads the topic; each group reads all of it.
        name: its name in events and metrics.
        batch_size: most messages that are sent and settled together.
        max_in_flight: most messages that are sent and not yet confirmed, in this process.
        linger: seconds to wait for a queue's batch to fill.
        ordered: False sends messages of one key, and those of a topic without a key, at the same time too.
        on_dead: whether the next messages of a key go on ("continue") or wait ("block") after one was refused.
        retry_strategy: when a message comes again whose sending failed for another reason than the broker's absence.
        lease_ttl_seconds: how long a claim holds without renewal.
        min_fetch_interval: seconds between full scans while there is work.
        max_fetch_interval: the same when idle.
        start: where a group begins that has never read.
        max_deferred: so many messages of a topic may wait behind one of their key; then its slot stops.
        envelope: "cloudevents" adds the attributes of CloudEvents 1.0 as headers, "cloudevents-structured" makes a
            JSON object of them and the body.
        """
        from faststream_outbox._internal.relay.options import RelayOptions
        from faststream_outbox._internal.relay.relay import make_relay, weaknesses

        options = RelayOptions(
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            linger=linger,
            ordered=ordered,
            on_dead=on_dead,
            retry_strategy=DEFAULT_RETRY if retry_strategy is None else retry_strategy,
            lease_ttl_seconds=lease_ttl_seconds,
            min_fetch_interval=min_fetch_interval,
            max_fetch_interval=max_fetch_interval,
            start=start,
            max_deferred=max_deferred,
            envelope=envelope,
        )
        # A mixin of registrators, whose types FastStream has.
        registrator: Any = self
        relay = make_relay(queues, topic, group, to, name, options)
        if group is not None:
            registrator._check_topics()
        relay.prefix = lambda: registrator.config.prefix
        for problem in weaknesses(relay):
            warn(f"{relay.name} may lose messages: {problem}.")
        warn_about_shared(relay.queues, group, registrator._neighbours())
        self._own_relays.append(relay)
        return relay
