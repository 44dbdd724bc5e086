"""Read-only questions about queues and topics: how many, how old, who, why not. They lease nothing and lock nothing.

Metrics, health, the command line, the dashboard and the doctor show these answers; a role that may only read is enough.
"""

from faststream_outbox._internal.overview.message import MessageStatus
from faststream_outbox._internal.overview.overview import Overview
from faststream_outbox._internal.overview.processes import Process, Rates
from faststream_outbox._internal.overview.queues import QueueStatus, TimerStatus
from faststream_outbox._internal.overview.topics import BlockedKey, GapOwner, GapStatus, SlotStatus
from faststream_outbox._internal.publish.put import Unprocessed, as_unprocessed, fetch_unprocessed

__all__ = [
    "BlockedKey",
    "GapOwner",
    "GapStatus",
    "MessageStatus",
    "Overview",
    "Process",
    "QueueStatus",
    "Rates",
    "SlotStatus",
    "TimerStatus",
    "Unprocessed",
    "as_unprocessed",
    "fetch_unprocessed",
]
