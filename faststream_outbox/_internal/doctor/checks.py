"""All checks, in the order in which they run: the server first, then what stands in the tables."""

from collections.abc import Sequence

from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.connections import CONNECTIONS, IDLE, POOLER
from faststream_outbox._internal.doctor.gaps import GAPS
from faststream_outbox._internal.doctor.groups import GROUPS, PAUSED_GROUPS
from faststream_outbox._internal.doctor.keys import HELD_KEYS, PARKED_KEYS
from faststream_outbox._internal.doctor.partitions import PARTITIONS
from faststream_outbox._internal.doctor.queues import DEAD_LETTERS, PAUSED_QUEUES, READY
from faststream_outbox._internal.doctor.schema import INDEXES, SCHEMA, UNLOGGED
from faststream_outbox._internal.doctor.sequences import DEAD_IDS, IDS, POSITIONS
from faststream_outbox._internal.doctor.server import CLOCK, DURABILITY, RIGHTS, SERVER
from faststream_outbox._internal.doctor.snapshots import PREPARED, SLOTS, STANDBYS, TRANSACTIONS
from faststream_outbox._internal.doctor.vacuum import AUTOVACUUM, DEAD_ROWS, WRAPAROUND
from faststream_outbox._internal.doctor.wakeups import LISTENER, NOTIFICATIONS

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
