"""All checks, in the order in which they run: the server first, then what stands in the tables."""

from collections.abc import Sequence

from faststream_outbox.doctor.check import Check
from faststream_outbox.doctor.connections import CONNECTIONS, IDLE, POOLER
from faststream_outbox.doctor.gaps import GAPS
from faststream_outbox.doctor.groups import GROUPS, PAUSED_GROUPS
from faststream_outbox.doctor.keys import HELD_KEYS, PARKED_KEYS
from faststream_outbox.doctor.partitions import PARTITIONS
from faststream_outbox.doctor.queues import DEAD_LETTERS, PAUSED_QUEUES, READY
from faststream_outbox.doctor.schema import INDEXES, SCHEMA, UNLOGGED
from faststream_outbox.doctor.sequences import DEAD_IDS, IDS, POSITIONS
from faststream_outbox.doctor.server import CLOCK, DURABILITY, RIGHTS, SERVER
from faststream_outbox.doctor.snapshots import PREPARED, SLOTS, STANDBYS, TRANSACTIONS
from faststream_outbox.doctor.vacuum import AUTOVACUUM, DEAD_ROWS, WRAPAROUND
from faststream_outbox.doctor.wakeups import LISTENER, NOTIFICATIONS

CHECKS: Sequence[Check] = (
    SERVER,
    RIGHTS,
    SCHEMA,
    INDEXES,
    UNLOGGED,
    IDS,
    DEAD_IDS,
    POSITIONS,
    PARTITIONS,
    DURABILITY,
    CLOCK,
    AUTOVACUUM,
    DEAD_ROWS,
    WRAPAROUND,
    TRANSACTIONS,
    PREPARED,
    SLOTS,
    STANDBYS,
    GAPS,
    CONNECTIONS,
    IDLE,
    POOLER,
    LISTENER,
    NOTIFICATIONS,
    READY,
    PAUSED_QUEUES,
    DEAD_LETTERS,
    HELD_KEYS,
    GROUPS,
    PAUSED_GROUPS,
    PARKED_KEYS,
)
