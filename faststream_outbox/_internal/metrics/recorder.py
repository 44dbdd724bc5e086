"""From what the engine tells to what is counted: the half that both recorders share.

A recorder is given to a broker as `metrics_recorder=` and then hears the calls that `faststream-outbox` 0.19
knew. With `listen(events)` it hears the typed events themselves and so also counts what has no such call. One
that listens ignores the calls, so that using both ways counts nothing twice; let it then listen to each of the
brokers that share it.

It remembers which messages were started and closes each of them once, so that the gauge of running handlers
returns to zero whatever becomes of them, and never goes below.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.recorder import Recorded, calls
from faststream_outbox._internal.events.types import Event
from faststream_outbox._internal.metrics import series as known
from faststream_outbox._internal.metrics.sampler import Bounds, Reading
from faststream_outbox._internal.metrics.series import Series
from faststream_outbox._internal.options import check_seconds

Tags = Mapping[str, Any]
Status = Literal["acked", "nacked", "error"]

_CLOSING: dict[str, Status | None] = {
    "acked": "acked",
    "nacked_retried": "nacked",
    "nacked_terminal": "error",
    "lease_lost": None,
    "dispatch_abandoned": None,
}


def _message(tags: Tags) -> tuple[Any, ...]:
    return tuple(tags.get(name) for name in ("queue", "subscriber", "row_id", "deliveries_count"))


def _of_message(event: events.MessageEvent) -> Tags:
    return {"queue": event.queue, "subscriber": event.worker, "group": event.group}


class Recorder(ABC):
    """Hears calls or events; how they are counted is up to the subclass."""

    def __init__(self, sample_every: float | None = None) -> None:
        if sample_every is not None:
            check_seconds("sample_every", sample_every)
        self.sample_every = sample_every
        """Seconds between two questions to the database, for gauges; None asks none."""
        self._started: Counter[tuple[Any, ...]] = Counter()
        self._heard: list[tuple[Events, Callable[[], None]]] = []
        self._left: list[Events] = []
        self._slots: dict[tuple[str, str], dict[str, int]] = {}
        self._bounds = Bounds()

    def _bounded(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Labels whose values cannot become ever more."""
        return {name: self._bounds.bounded(name, value) for name, value in labels.items()}

    def __call__(self, event: str, tags: Tags) -> None:
        """Part of the contract of `metrics_recorder`: count one call, unless typed events tell of it already."""
        if not self._heard:
            self._take(event, tags)

    def listen(self, events: Events) -> Callable[[], None]:
        """Count everything that is emitted on `events`; returns what undoes it. Twice is once."""
        for heard, undo in self._heard:
            if heard is events:
                return undo
        unsubscribe = events.subscribe(partial(self._hear, events=events))

        def forget() -> None:
            unsubscribe()
            self._heard = [item for item in self._heard if item[0] is not events]

        self._heard.append((events, forget))
        return forget

    @property
    def counts_in(self) -> object:
        """Where the series that FastStream's middleware has too are counted; None if they are not."""
        return None

    def leave_bus_to(self, middleware: object, events: Events) -> None:
        """Leave the series that both have to a middleware of the same broker, if it counts in the same place."""
        place: object = getattr(middleware, "counts_in", None)
        if place is not None and place == self.counts_in:
            self._left.append(events)

    def _hear(self, event: Event, events: Events | None = None) -> None:
        if isinstance(event, Recorded):
            bus = not any(events is left for left in self._left)
            for name, tags in calls(event):
                self._take(name, tags, bus=bus)
        self._note(event)

    def _take(self, name: str, tags: Tags, *, bus: bool = True) -> None:
        if name == "dispatched":
            self._started[_message(tags)] += 1
            self._on_start(tags, bus=bus)
        elif name == "published":
            if bus:
                self._on_publish(tags)
        elif name in _CLOSING and self._close(_message(tags)):
            self._on_end(tags, _CLOSING[name], bus=bus)
        if name in ("acked", "nacked_terminal"):
            self._observe_end(tags, "done" if name == "acked" else "dead")
        match name:
            case "fetched":
                self._tell(known.FETCH_BATCHES, {"non_empty": "true" if tags.get("count") else "false"}, tags)
            case "nacked_terminal":
                self._tell(known.TERMINAL, {"reason": str(tags.get("reason", ""))}, tags)
            case "dlq_written":
                self._tell(known.DLQ_WRITTEN, {"reason": str(tags.get("failure_reason", ""))}, tags)
            case "lease_lost":
                self._tell(known.LEASE_LOST, {"phase": str(tags.get("phase", ""))}, tags)
            case "drain_timeout":
                self._tell(known.DRAIN_TIMEOUT, {}, tags)
            case "dispatch_abandoned":
                self._tell(known.DISPATCH_ABANDONED, {}, tags)
            case _:
                pass

    def _observe_end(self, tags: Tags, outcome: str) -> None:
        if tags.get("age_seconds") is not None:
            self._tell(known.DELIVERY_SECONDS, {"outcome": outcome}, tags, tags["age_seconds"])
        if tags.get("deliveries_count"):
            self._tell(known.DELIVERIES_PER_MESSAGE, {"outcome": outcome}, tags, tags["deliveries_count"])

    def _close(self, message: tuple[Any, ...]) -> bool:
        """Whether the message was running until now; one that never began has nothing to close."""
        running = self._started.pop(message, 0)
        if running > 1:
            self._started[message] = running - 1
        return running > 0

    def _note(self, event: Event) -> None:
        """Count what has no call."""
        match event:
            case events.Released(was_started=started):
                self._tell(known.RELEASED, {"started": "true" if started else "false"}, _of_message(event))
            case events.Abandoned():
                self._tell(known.ABANDONED, {}, _of_message(event))
            case events.OutcomeRefused():
                self._tell(known.OUTCOME_REFUSED, {}, _of_message(event))
            case events.MessageSetApart(queue=queue):
                self._tell(known.SET_APART, {"queue": queue}, {})
            case events.StillRunning(worker=worker, running=running):
                self._tell(known.STILL_RUNNING, {}, {"subscriber": worker}, running)
            case events.LeasesRenewed(count=count):
                self._tell(known.LEASES_RENEWED, {}, {}, count)
            case events.StatementFailed(role=role):
                self._tell(known.CONNECTION_LOST, {"role": role}, {})
            case events.StatementWorks(role=role, outage_seconds=seconds):
                self._tell(known.CONNECTION_OUTAGE, {"role": role}, {}, seconds)
            case events.ListenerReady(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 1)
            case events.ListenerLost(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 0)
                self._tell(known.LISTENER_LOST, {"channel": channel, "reason": "lost"}, {})
            case events.ListenerDeaf(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 0)
                self._tell(known.LISTENER_LOST, {"channel": channel, "reason": "deaf"}, {})
            case events.LoopCrashed(name=name):
                self._tell(known.LOOP_CRASHES, {"loop": name}, {})
            case events.HookFailed(hook=hook):
                self._tell(known.HOOK_FAILED, {"hook": hook}, {})
            case _:
                self._note_of_log(event)

    def _note_of_log(self, event: Event) -> None:
        match event:
            case events.Ticked(log=log, count=count, late=late):
                self._tell(known.SEQUENCED, {"log": log, "late": "false"}, {}, count - late)
                self._tell(known.SEQUENCED, {"log": log, "late": "true"}, {}, late)
            case events.SequenceAdvanced(log=log):
                self._tell(known.SEQUENCE_ADVANCED, {"log": log}, {})
            case events.GapOld(log=log, age_seconds=age):
                self._tell(known.GAP_AGE, {"log": log}, {}, age)
            case events.GapClosed(log=log):
                self._tell(known.GAP_AGE, {"log": log}, {}, 0)
            case events.SlotsHeld(group=group, uri=uri, member=member, slots=slots):
                held = self._slots.setdefault((group, uri), {})
                held[member] = slots
                if not slots:
                    del held[member]
                self._tell(known.SLOTS_HELD, {"group": group, "uri": uri}, {}, sum(held.values()))
            case events.KeyHalted(group=group, uri=uri):
                self._tell(known.KEYS_HALTED, {"group": group, "uri": uri}, {})
            case events.GroupExpired(group=group, uri=uri):
                self._tell(known.GROUPS_EXPIRED, {"group": group, "uri": uri}, {})
            case events.MessagesMissed(group=group, uri=uri, positions=positions):
                self._tell(known.MESSAGES_MISSED, {"group": group, "uri": uri}, {}, len(positions))
            case events.LogCleaned(log=log, messages=messages, partitions=partitions):
                self._tell(known.MESSAGES_CLEANED, {"log": log}, {}, messages)
                self._tell(known.PARTITIONS_DROPPED, {"log": log}, {}, partitions)
            case events.PartitionsMade(log=log, names=names):
                self._tell(known.PARTITIONS_MADE, {"log": log}, {}, len(names))
            case events.DeadLettersPurged(table=table, count=count):
                self._tell(known.DEAD_LETTERS_PURGED, {"table": table}, {}, count)
            case events.ChoreFailed(chore=chore):
                self._tell(known.CHORES_FAILED, {"chore": chore}, {})
            case events.Relayed() | events.RelayDown() | events.RelayUp():
                self._note_of_relay(event)
            case _:
                self._note_of_inbox(event)

    def _note_of_inbox(self, event: Event) -> None:
        match event:
            case events.Received(consumer=consumer, source=source):
                self._tell(known.INBOX_RECEIVED, {"consumer": consumer, "source": source}, {})
            case events.DuplicateSkipped(consumer=consumer, source=source):
                self._tell(known.INBOX_DUPLICATES, {"consumer": consumer, "source": source}, {})
            case events.DeliveryHeldUp(consumer=consumer, source=source, waited_seconds=seconds):
                outcome = "comes_again" if seconds is None else "waited"
                self._tell(known.INBOX_HELD_UP, {"consumer": consumer, "source": source, "outcome": outcome}, {})
            case events.ResponseReplayed(consumer=consumer, source=source):
                self._tell(known.INBOX_REPLAYED, {"consumer": consumer, "source": source}, {})
            case events.ReceiptsCleaned(table=table, count=count):
                self._tell(known.RECEIPTS_CLEANED, {"table": table}, {}, count)
            case _:
                pass

    def _note_of_relay(self, event: events.Relayed | events.RelayDown | events.RelayUp) -> None:
        labels = {"relay": event.relay, "transport": event.transport}
        match event:
            case events.Relayed(sent=sent, refused=refused, in_flight=in_flight):
                self._tell(known.RELAYED, labels, {}, sent)
                self._tell(known.RELAY_REFUSED, labels, {}, refused)
                self._tell(known.RELAY_IN_FLIGHT, labels, {}, in_flight)
            case events.RelayDown():
                self._tell(known.RELAY_UP, labels, {}, 0)
            case events.RelayUp(outage_seconds=seconds):
                self._tell(known.RELAY_UP, labels, {}, 1)
                self._tell(known.RELAY_OUTAGE, labels, {}, seconds)

    @abstractmethod
    def show(self, readings: Sequence[Reading]) -> None:
        """Show what was asked of the database, in the place of what was shown before; called by the sampler."""

    def hide(self) -> None:
        """Show nothing that was asked of the database: another process does."""
        self.show(())

    @abstractmethod
    def _tell(self, series: Series, labels: Mapping[str, str], tags: Tags, value: float = 1) -> None:
        """Count, set or observe a value of one of the outbox's own series."""

    @abstractmethod
    def _on_start(self, tags: Tags, *, bus: bool) -> None:
        """A handler begins; `bus` if the series that middlewares have too are to be counted."""

    @abstractmethod
    def _on_end(self, tags: Tags, status: Status | None, *, bus: bool) -> None:
        """A handler that began has ended; without a status if nothing was decided or its lease was gone."""

    @abstractmethod
    def _on_publish(self, tags: Tags) -> None:
        """Messages were inserted, or could not be."""
