"""The ordered log: topics, consumer groups and replay on PostgreSQL.

Every group reads every message, in order per URI, and can be put anywhere in the log. A long transaction
delays only its own messages. Usable without FastStream: `Outbox` and `OutboxMessage` are the way in; the
broker's topics stand on the same engine.
"""

from faststream_outbox.log.append import DuplicateMessage, SequenceBehind, Token
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.dispatching import Dispatched, Subscriber
from faststream_outbox.log.message import OutboxMessage
from faststream_outbox.log.outbox import Outbox
from faststream_outbox.log.parking import SetAside
from faststream_outbox.log.positions import Lag
from faststream_outbox.log.retention import Cleaned
from faststream_outbox.log.slots import slot_of
from faststream_outbox.log.spans import Cursor
from faststream_outbox.schema.log_tables import LogTables, make_log_tables

__all__ = [
    "Cleaned",
    "Cursor",
    "Delivery",
    "Dispatched",
    "DuplicateMessage",
    "Lag",
    "LogTables",
    "Outbox",
    "OutboxMessage",
    "SequenceBehind",
    "SetAside",
    "Subscriber",
    "Token",
    "make_log_tables",
    "slot_of",
]
