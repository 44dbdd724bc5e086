"""The ordered log: topics, consumer groups and replay on PostgreSQL.

Every group reads every message, in order per URI, and can be put anywhere in the log. A long transaction
delays only its own messages. Usable without FastStream: `Outbox` and `OutboxMessage` are the way in; the
broker's topics stand on the same engine.
"""

from faststream_outbox._internal.log.admin.groups import Groups, GroupStatus
from faststream_outbox._internal.log.admin.parked import DeferredMessage, Parking
from faststream_outbox._internal.log.admin.positions import Lag, SlotLag
from faststream_outbox._internal.log.admin.retention import Cleaned
from faststream_outbox._internal.log.append import Token
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.dispatching import Dispatched, Subscriber
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.log.sharing.slots import Cursor, slot_of
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from faststream_outbox.errors import DuplicateMessage, SequenceBehind

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
    "Groups",
    "Lag",
    "LogClient",
    "LogTables",
    "Outbox",
    "OutboxMessage",
    "Parking",
    "SequenceBehind",
    "SlotLag",
    "Subscriber",
    "Token",
    "TopicMessage",
    "make_log_tables",
    "slot_of",
]
