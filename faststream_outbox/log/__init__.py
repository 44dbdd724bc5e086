"""The ordered log: topics, consumer groups and replay on PostgreSQL.

Every group reads every message, in order per URI, and can be put anywhere in the log. A long transaction
delays only its own messages. Usable without FastStream: `Outbox` and `OutboxMessage` are the way in; the
broker's topics stand on the same engine.
"""

from faststream_outbox.log.admin.groups import GroupStatus
from faststream_outbox.log.admin.lag import Lag, SlotLag
from faststream_outbox.log.admin.retention import Cleaned
from faststream_outbox.log.append import DuplicateMessage, SequenceBehind, Token
from faststream_outbox.log.deferral.parked import DeferredMessage
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.dispatching import Dispatched, Subscriber
from faststream_outbox.log.message import OutboxMessage
from faststream_outbox.log.outbox import Outbox
from faststream_outbox.log.sharing.slots import slot_of
from faststream_outbox.log.sharing.spans import Cursor
from faststream_outbox.schema.log_tables import LogTables, make_log_tables

TopicMessage = OutboxMessage
"""The same under a name that nothing else has: a handler's `OutboxMessage` is another."""

__all__ = [
    "Cleaned",
    "Cursor",
    "DeferredMessage",
    "Delivery",
    "Dispatched",
    "DuplicateMessage",
    "GroupStatus",
    "Lag",
    "LogTables",
    "Outbox",
    "OutboxMessage",
    "SequenceBehind",
    "SlotLag",
    "Subscriber",
    "Token",
    "TopicMessage",
    "make_log_tables",
    "slot_of",
]
