"""The gauges that are asked of the database: how much waits, how old it is, who reads it. Printed in docs/metrics.md.

Shown by the one process that asks at the moment, so a query takes their `max` over instances and never their sum. Named
as those of `series`.
"""

from faststream_outbox._internal.metrics.series import Series


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
