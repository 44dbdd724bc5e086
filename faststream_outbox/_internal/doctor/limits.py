"""From when on something is called old, many or full. Given to a `Doctor` by whoever wants to hear of it sooner."""

from dataclasses import dataclass

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is below all of these is nobody's fault.

    transaction_seconds: how long a transaction may be open; critical from twelve times that on.
    kept_transactions: how many transactions may have begun since the oldest that a slot or a standby wants to see.
    slot_seconds: how long nobody may use a replication slot.
    kept_wal_bytes: how much WAL an unused slot may keep, whatever its age.
    gap_seconds: how long a gap of the log may be open.
    dead_rows: how many dead rows a table may have, and twice what autovacuum waits for.
    frozen_age: how many transactions may have begun since the oldest in a table.
    unused_index_rows: after how many inserted rows an index that was never read is mentioned.
    connections: the share of the connections that may be taken; critical from nine tenths on.
    notifications: the share of the queue of notifications that may be full; critical from half on.
    clock_seconds: how far the clocks of this machine and of the server may be apart.
    ready_seconds: how long a message may be due while nobody takes it, also behind one that failed.
    dead_letters: how many messages of a queue may die in an hour.
    group_seconds: how long a group may be silent.
    pause_seconds: how long a pause may last.
    """

    transaction_seconds: float = 5 * MINUTE
    kept_transactions: int = 100_000
    slot_seconds: float = 5 * MINUTE
    kept_wal_bytes: int = 2**30
    gap_seconds: float = MINUTE
    dead_rows: int = 10_000
    frozen_age: int = 1_000_000_000
    unused_index_rows: int = 100_000
    connections: float = 0.75
    notifications: float = 0.1
    clock_seconds: float = 2.0
    ready_seconds: float = 5 * MINUTE
    dead_letters: int = 100
    group_seconds: float = 3 * DAY
    pause_seconds: float = DAY
