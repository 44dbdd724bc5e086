"""The series that only an outbox has, as one table: what is counted, by what, and what it means.

In Prometheus a counter is called `<prefix>_outbox_<name>_total`, a gauge or a histogram
`<prefix>_outbox_<name>`; in OpenTelemetry all are called `messaging.outbox.<name>`, unless `meter_name` says
otherwise. Read by both recorders.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "seconds"]


@dataclass(frozen=True, slots=True)
class Series:
    """One series; `of_handler` if it is told apart by subscriber (Prometheus) or queue (OpenTelemetry)."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "counter"
    of_handler: bool = False
    meter_name: str = ""

    @property
    def instrument(self) -> str:
        """The name in OpenTelemetry."""
        return self.meter_name or f"messaging.outbox.{self.name}"


FETCH_BATCHES = Series(
    "fetch_batches",
    "Claims that came back with messages",
    ("non_empty",),
    of_handler=True,
    meter_name="messaging.outbox.fetch.batches",
)
TERMINAL = Series("terminal", "Messages that failed for good", ("reason",), of_handler=True)
LEASE_LOST = Series("lease_lost", "Messages whose lease was gone", ("phase",), of_handler=True)
DLQ_WRITTEN = Series("dlq_written", "Dead letters written", ("reason",), of_handler=True)
DRAIN_TIMEOUT = Series("drain_timeout", "Stops that had to cancel handlers", of_handler=True)
DISPATCH_ABANDONED = Series(
    "dispatch_abandoned", "Messages whose handler began but did not decide, and that come again", of_handler=True
)
RELEASED = Series("released", "Messages given back to any worker", ("started",), of_handler=True)
ABANDONED = Series("abandoned", "Messages left to the end of their lease, unwritten at a stop", of_handler=True)
OUTCOME_REFUSED = Series(
    "outcome_refused", "Outcomes that the server refused; the messages are parked", of_handler=True
)
LEASES_RENEWED = Series("leases_renewed", "Leases that began anew while their messages were in hand")
CONNECTION_LOST = Series("connection_lost", "Failures of the library's own connections", ("role",))
CONNECTION_OUTAGE = Series(
    "connection_outage_seconds",
    "How long the work of a connection failed until it worked again",
    ("role",),
    kind="seconds",
    meter_name="messaging.outbox.connection_outage",
)
LISTENER_UP = Series("listener_up", "1 while LISTEN hears, 0 while polling fills in", ("channel",), kind="gauge")
LISTENER_LOST = Series("listener_lost", "Times that LISTEN ended or was found deaf", ("channel", "reason"))
LOOP_CRASHES = Series("loop_crashes", "Crashes of background loops, which start again", ("loop",))
HOOK_FAILED = Series("hook_failed", "Functions of the application's, given as options, that raised", ("hook",))
SEQUENCED = Series("sequenced", "Messages of a log that got their place in its order", ("log", "late"))
GAP_AGE = Series("gap_age_seconds", "Age of the oldest number of a log that is not visible", ("log",), "gauge")
SLOTS_HELD = Series("slots_held", "Slots that a member of a group holds", ("group", "uri", "member"), "gauge")
KEYS_HALTED = Series("keys_halted", "Keys behind which too many messages wait", ("group", "uri"))
GROUPS_EXPIRED = Series("groups_expired", "Times that a group was found dead by retention", ("group", "uri"))
MESSAGES_MISSED = Series("messages_missed", "Messages deleted before a group could retry them", ("group", "uri"))

ALL_SERIES = (
    FETCH_BATCHES,
    TERMINAL,
    LEASE_LOST,
    DLQ_WRITTEN,
    DRAIN_TIMEOUT,
    DISPATCH_ABANDONED,
    RELEASED,
    ABANDONED,
    OUTCOME_REFUSED,
    LEASES_RENEWED,
    CONNECTION_LOST,
    CONNECTION_OUTAGE,
    LISTENER_UP,
    LISTENER_LOST,
    LOOP_CRASHES,
    HOOK_FAILED,
    SEQUENCED,
    GAP_AGE,
    SLOTS_HELD,
    KEYS_HALTED,
    GROUPS_EXPIRED,
    MESSAGES_MISSED,
)
