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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from faststream_outbox.events import Event, Events
from faststream_outbox.events import table as told
from faststream_outbox.events.recorder import Recorded, calls
from faststream_outbox.metrics import series as known
from faststream_outbox.metrics.series import Series

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


class Recorder(ABC):
    """Hears calls or events; how they are counted is up to the subclass."""

    def __init__(self) -> None:
        self._started: Counter[tuple[Any, ...]] = Counter()
        self._heard: list[tuple[Events, Callable[[], None]]] = []
        self._left: list[Events] = []

    def __call__(self, event: str, tags: Tags) -> None:
        """Part of the contract of `metrics_recorder`: count one call, unless typed events tell of it already."""
        if not self._heard:
            self._take(event, tags)

    def listen(self, events: Events) -> Callable[[], None]:
        """Count everything that is told on `events`; returns what undoes it. Twice is once."""
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

    def _close(self, message: tuple[Any, ...]) -> bool:
        """Whether the message was running until now; one that never began has nothing to close."""
        running = self._started.pop(message, 0)
        if running > 1:
            self._started[message] = running - 1
        return running > 0

    def _note(self, event: Event) -> None:
        """Count what has no call."""
        match event:
            case told.Released(queue=queue, worker=worker, was_started=started):
                tags = {"queue": queue, "subscriber": worker}
                self._tell(known.RELEASED, {"started": "true" if started else "false"}, tags)
            case told.Abandoned(queue=queue, worker=worker):
                self._tell(known.ABANDONED, {}, {"queue": queue, "subscriber": worker})
            case told.OutcomeRefused(queue=queue, worker=worker):
                self._tell(known.OUTCOME_REFUSED, {}, {"queue": queue, "subscriber": worker})
            case told.LeasesRenewed(count=count):
                self._tell(known.LEASES_RENEWED, {}, {}, count)
            case told.ConnectionLost(role=role):
                self._tell(known.CONNECTION_LOST, {"role": role}, {})
            case told.ConnectionRestored(role=role, outage_seconds=seconds):
                self._tell(known.CONNECTION_OUTAGE, {"role": role}, {}, seconds)
            case told.ListenerReady(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 1)
            case told.ListenerLost(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 0)
                self._tell(known.LISTENER_LOST, {"channel": channel, "reason": "lost"}, {})
            case told.ListenerDeaf(channel=channel):
                self._tell(known.LISTENER_UP, {"channel": channel}, {}, 0)
                self._tell(known.LISTENER_LOST, {"channel": channel, "reason": "deaf"}, {})
            case told.LoopCrashed(name=name):
                self._tell(known.LOOP_CRASHES, {"loop": name}, {})
            case told.HookFailed(hook=hook):
                self._tell(known.HOOK_FAILED, {"hook": hook}, {})
            case _:
                self._note_of_log(event)

    def _note_of_log(self, event: Event) -> None:
        match event:
            case told.Ticked(log=log, count=count, late=late):
                self._tell(known.SEQUENCED, {"log": log, "late": "false"}, {}, count - late)
                self._tell(known.SEQUENCED, {"log": log, "late": "true"}, {}, late)
            case told.GapOld(log=log, age_seconds=age):
                self._tell(known.GAP_AGE, {"log": log}, {}, age)
            case told.SlotsHeld(group=group, uri=uri, member=member, slots=slots):
                self._tell(known.SLOTS_HELD, {"group": group, "uri": uri, "member": member}, {}, slots)
            case told.KeyHalted(group=group, uri=uri):
                self._tell(known.KEYS_HALTED, {"group": group, "uri": uri}, {})
            case told.GroupExpired(group=group, uri=uri):
                self._tell(known.GROUPS_EXPIRED, {"group": group, "uri": uri}, {})
            case told.MessagesMissed(group=group, uri=uri, positions=positions):
                self._tell(known.MESSAGES_MISSED, {"group": group, "uri": uri}, {}, len(positions))
            case _:
                pass

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
