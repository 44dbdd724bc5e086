"""One event of each type."""

from faststream_outbox.events import Event
from faststream_outbox.events import table as told

ERROR = ValueError("no such order")
OF_MESSAGE = {"queue": "orders", "worker": "billing", "id": 17, "deliveries_count": 3}

SAMPLES: list[Event] = [
    told.Published("orders", 2, 30, 0.001),
    told.Claimed("orders", "billing", 5),
    told.Started(**OF_MESSAGE, size_bytes=12),
    told.Handled(**OF_MESSAGE, duration_seconds=0.5),
    told.Retried(**OF_MESSAGE, duration_seconds=0.5, delay_seconds=2.0, error=ERROR),
    told.Died(**OF_MESSAGE, duration_seconds=0.5, reason="rejected", kept=True, error=ERROR),
    told.Released(**OF_MESSAGE, was_started=True),
    told.LeaseLost(**OF_MESSAGE, phase="running"),
    told.Abandoned(**OF_MESSAGE),
    told.LeasesRenewed(4),
    told.OutcomeRefused(**OF_MESSAGE, error=ERROR),
    told.MessageSetApart("orders", 17, ERROR),
    told.HookFailed("on_terminal_failure", ERROR),
    told.DrainTimedOut("billing", 15.0, 2),
    told.StillRunning("billing", 1),
    told.LoopCrashed("outbox claimer", ERROR),
    told.Ticked("outbox", 7, 100, 1),
    told.GapOld("outbox", 61.0, ("4711 (shop@shop)",)),
    told.SequenceAdvanced("outbox", 1, 1000),
    told.SlotsHeld("billing", "orders", "member", 128, 2),
    told.KeyHalted("billing", "orders", "orders/1", 10_000),
    told.GroupExpired("billing", "orders", 86_400.0),
    told.MessagesMissed("billing", "orders", (1, 2, 3)),
    told.ConnectionLost("claim", ERROR),
    told.ConnectionRestored("claim", 1.5),
    told.ListenerReady("outbox_outbox"),
    told.ListenerLost("outbox_outbox", None),
    told.ListenerDeaf("outbox_outbox"),
]
