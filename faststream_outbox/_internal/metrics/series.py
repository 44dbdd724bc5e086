"""The series that only an outbox has, as two tables: what is counted, and the gauges that are asked of the database.

In Prometheus a counter is called `<prefix>_outbox_<name>_total`, a gauge or a histogram
`<prefix>_outbox_<name>`; in OpenTelemetry all are called `messaging.outbox.<name>`, unless `meter_name` says
otherwise. Gauges are shown by the one process that asks at the moment, so a query takes their `max` over instances and
never their sum. Read by both recorders and by the sampler, and printed in docs/metrics.md.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "seconds", "amount"]
"""The last two are histograms: of times, and of numbers of things."""

OUTAGE_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
AGE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
DELIVERIES = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One series; `of_handler` if it has a label for the subscriber and, of a topic, for the group."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = "counter"
    of_handler: bool = False
    meter_name: str = ""
    buckets: tuple[float, ...] = OUTAGE_SECONDS
    """Of a histogram."""
    over_processes: Literal["livesum", "livemin", "livemax", "livemostrecent"] = "livesum"
    """What `prometheus_client` makes of a gauge that several processes have, where they share a directory."""

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
DELIVERY_SECONDS = Series(
    "delivery_seconds",
    "From publishing to the end: retries, delays and waiting included",
    ("outcome",),
    kind="seconds",
    of_handler=True,
    meter_name="messaging.outbox.delivery",
    buckets=AGE_SECONDS,
)
DELIVERIES_PER_MESSAGE = Series(
    "deliveries_per_message",
    "Deliveries that a message took until it was done or dead",
    ("outcome",),
    kind="amount",
    of_handler=True,
    buckets=DELIVERIES,
)
RELEASED = Series("released", "Messages given back to any worker", ("started",), of_handler=True)
ABANDONED = Series("abandoned", "Messages left to the end of their lease, unwritten at a stop", of_handler=True)
OUTCOME_REFUSED = Series(
    "outcome_refused", "Outcomes that the server refused; the messages are set apart", of_handler=True
)
SET_APART = Series("set_apart", "Messages that cannot be fetched, and were put out of reach of claims", ("queue",))
STILL_RUNNING = Series("still_running", "Handlers that run on after a stop has cancelled them", of_handler=True)
LEASES_RENEWED = Series("leases_renewed", "Leases that began anew while their messages were in flight")
CONNECTION_LOST = Series("connection_lost", "Failures of the library's own connections", ("role",))
CONNECTION_OUTAGE = Series(
    "connection_outage_seconds",
    "How long the work of a connection failed until it worked again",
    ("role",),
    kind="seconds",
    meter_name="messaging.outbox.connection_outage",
)
LISTENER_UP = Series(
    "listener_up", "1 while LISTEN hears, 0 while polling fills in", ("channel",), "gauge", over_processes="livemin"
)
LISTENER_LOST = Series("listener_lost", "Times that LISTEN ended or was found deaf", ("channel", "reason"))
LOOP_CRASHES = Series("loop_crashes", "Crashes of background loops, which start again", ("loop",))
HOOK_FAILED = Series("hook_failed", "Functions of the application's, given as options, that raised", ("hook",))
SEQUENCED = Series("sequenced", "Messages of a log that got their place in its order", ("log", "late"))
SEQUENCE_ADVANCED = Series("sequence_advanced", "Times that a sequence stood behind its log and was moved", ("log",))
GAP_AGE = Series(
    "gap_age_seconds",
    "Age of the oldest number of a log that is not visible, once that is a minute",
    ("log",),
    "gauge",
    over_processes="livemax",
)
SLOTS_HELD = Series("slots_held", "Slots of a group that this process holds", ("group", "uri"), "gauge")
KEYS_HALTED = Series("keys_halted", "Keys behind which too many messages wait", ("group", "uri"))
GROUPS_EXPIRED = Series("groups_expired", "Times that a group was found dead by retention", ("group", "uri"))
MESSAGES_MISSED = Series("messages_missed", "Messages deleted before a group could retry them", ("group", "uri"))
MESSAGES_CLEANED = Series("messages_cleaned", "Messages of a log that retention has deleted", ("log",))
PARTITIONS_DROPPED = Series("partitions_dropped", "Partitions of a log that retention has dropped", ("log",))
PARTITIONS_MADE = Series("partitions_made", "Partitions of a log that were made ahead", ("log",))
DEAD_LETTERS_PURGED = Series("dead_letters_purged", "Dead letters that were deleted because of their age", ("table",))
INBOX_RECEIVED = Series("inbox_received", "Messages whose effects an inbox has committed", ("consumer", "source"))
INBOX_DUPLICATES = Series("inbox_duplicates", "Messages that came again and were skipped", ("consumer", "source"))
INBOX_HELD_UP = Series(
    "inbox_held_up",
    "Messages that came while their first delivery was being handled: they waited, or come again",
    ("consumer", "source", "outcome"),
)
INBOX_REPLAYED = Series(
    "inbox_replayed", "Requests that came again and got the answer that was kept", ("consumer", "source")
)
RECEIPTS_CLEANED = Series("receipts_cleaned", "Receipts that were deleted because of their age", ("table",))
CHORES_FAILED = Series("chores_failed", "Times that a chore of the janitor failed", ("chore",))
RELAYED = Series("relayed", "Messages that another broker has confirmed", ("relay", "transport"))
RELAY_REFUSED = Series("relay_refused", "Messages that another broker has refused", ("relay", "transport"))
RELAY_IN_FLIGHT = Series("relay_in_flight", "Messages sent and not yet answered", ("relay", "transport"), "gauge")
RELAY_UP = Series(
    "relay_up",
    "1 while the broker that a relay sends to answers, 0 while it does not",
    ("relay", "transport"),
    "gauge",
    over_processes="livemin",
)
RELAY_OUTAGE = Series(
    "relay_outage_seconds",
    "How long a broker that a relay sends to did not answer",
    ("relay", "transport"),
    kind="seconds",
    meter_name="messaging.outbox.relay_outage",
)

ALL_SERIES = (
    FETCH_BATCHES,
    TERMINAL,
    LEASE_LOST,
    DLQ_WRITTEN,
    DRAIN_TIMEOUT,
    DISPATCH_ABANDONED,
    DELIVERY_SECONDS,
    DELIVERIES_PER_MESSAGE,
    RELEASED,
    ABANDONED,
    OUTCOME_REFUSED,
    SET_APART,
    STILL_RUNNING,
    LEASES_RENEWED,
    CONNECTION_LOST,
    CONNECTION_OUTAGE,
    LISTENER_UP,
    LISTENER_LOST,
    LOOP_CRASHES,
    HOOK_FAILED,
    SEQUENCED,
    SEQUENCE_ADVANCED,
    GAP_AGE,
    SLOTS_HELD,
    KEYS_HALTED,
    GROUPS_EXPIRED,
    MESSAGES_MISSED,
    MESSAGES_CLEANED,
    PARTITIONS_DROPPED,
    PARTITIONS_MADE,
    DEAD_LETTERS_PURGED,
    INBOX_RECEIVED,
    INBOX_DUPLICATES,
    INBOX_HELD_UP,
    INBOX_REPLAYED,
    RECEIPTS_CLEANED,
    CHORES_FAILED,
    RELAYED,
    RELAY_REFUSED,
    RELAY_IN_FLIGHT,
    RELAY_UP,
    RELAY_OUTAGE,
)


def _sampled(name: str, help: str, *labels: str) -> Series:
    return Series(name, help, labels, "gauge", over_processes="livemostrecent")


QUEUE_READY = _sampled("queue_ready", "Messages of a queue that are due and not leased", "queue")
QUEUE_SCHEDULED = _sampled("queue_scheduled", "Messages of a queue that are due later", "queue")
QUEUE_LEASED = _sampled("queue_leased", "Messages of a queue that somebody handles", "queue")
QUEUE_DEAD = _sampled("queue_dead", "Dead letters of a queue", "queue")
QUEUE_SET_APART = _sampled("queue_set_apart", "Messages of a queue that are out of reach of every claim", "queue")
QUEUE_OLDEST = _sampled(
    "queue_oldest_ready_seconds", "Since the oldest message of a queue that is ready fell due", "queue"
)
QUEUE_PAUSED = _sampled("queue_paused", "1 while a queue is paused", "queue")
GROUP_LAG = _sampled("group_lag_messages", "Messages of a topic that a group has not read", "group", "uri")
GROUP_LAG_SECONDS = _sampled(
    "group_lag_seconds", "Since the first message could be read that a group has not read", "group", "uri"
)
GROUP_MEMBERS = _sampled("group_members", "Readers of a group that live, in all processes", "group", "uri")
GROUP_PARKED = _sampled("group_parked", "Messages that a group has parked", "group", "uri")
GROUP_BLOCKED_KEYS = _sampled(
    "group_blocked_keys", "Keys of a group that wait for a message that failed", "group", "uri"
)
GROUP_PAUSED = _sampled("group_paused", "1 while a group is paused", "group", "uri")
OLDEST_GAP = _sampled("oldest_gap_seconds", "Age of the oldest transaction that keeps a gap of a log open", "log")
RELAY_OLDEST = _sampled(
    "relay_oldest_seconds", "For how long the oldest message waits that is not relayed", "relay", "transport"
)
CONNECTIONS = _sampled("connections", "Connections of the library's own to this database, of all processes")
PROCESSES = _sampled("processes", "Processes that have connections of the library's own to this database")
DEAD_ROWS = _sampled("dead_rows", "Dead rows of a table that no vacuum has removed yet, as the server counts", "table")
LIVE_ROWS = _sampled("live_rows", "Rows of a table, as the server counts", "table")
SAMPLE_SECONDS = _sampled("sample_seconds", "How long it took to ask for these")
SAMPLE_FAILED = _sampled("sample_failed", "1 while a question has no answer, and its gauges are missing", "question")

SAMPLED_SERIES = (
    QUEUE_READY,
    QUEUE_SCHEDULED,
    QUEUE_LEASED,
    QUEUE_DEAD,
    QUEUE_SET_APART,
    QUEUE_OLDEST,
    QUEUE_PAUSED,
    GROUP_LAG,
    GROUP_LAG_SECONDS,
    GROUP_MEMBERS,
    GROUP_PARKED,
    GROUP_BLOCKED_KEYS,
    GROUP_PAUSED,
    OLDEST_GAP,
    RELAY_OLDEST,
    CONNECTIONS,
    PROCESSES,
    DEAD_ROWS,
    LIVE_ROWS,
    SAMPLE_SECONDS,
    SAMPLE_FAILED,
)
