"""All strikes that there are."""

from tests.faults.machine.strikes.clock import ClockShifted
from tests.faults.machine.strikes.disk import DiskFull
from tests.faults.machine.strikes.lines import (
    AnswersLost,
    BlackHole,
    CommitAnswersLost,
    Cut,
    HalfClosed,
    Late,
    NatsCut,
    RequestsLost,
    Slow,
)
from tests.faults.machine.strikes.locks import RowsLocked, TableLocked
from tests.faults.machine.strikes.operators import Revived, Sought
from tests.faults.machine.strikes.processes import Frozen, Grown, Killed, Rolled, Shrunk, Stopped
from tests.faults.machine.strikes.servers import (
    BackendKilled,
    FailedOver,
    NatsRestarted,
    PoolerRestarted,
    PostgresRestarted,
)
from tests.faults.machine.strikes.sessions import ConnectionsFilled, Terminated
from tests.faults.machine.strikes.snapshots import PreparedHeld, SnapshotHeld
from tests.faults.machine.strikes.strike import Strike
from tests.faults.machine.strikes.upkeep import Upkeep


def catalogue() -> list[Strike]:
    """One of each kind; `roles` of those that hit children are all."""
    return [
        Killed(),
        Stopped(),
        Frozen(),
        Rolled(),
        Grown(),
        Shrunk(),
        ClockShifted(),
        Cut(),
        HalfClosed(),
        AnswersLost(),
        RequestsLost(),
        CommitAnswersLost(),
        Late(),
        Slow(),
        BlackHole(),
        PostgresRestarted("fast"),
        PostgresRestarted("immediate"),
        PostgresRestarted("sigquit"),
        BackendKilled(),
        FailedOver(),
        PoolerRestarted(),
        NatsRestarted(),
        NatsCut(),
        Terminated("all"),
        Terminated("one"),
        Terminated("listen"),
        ConnectionsFilled(),
        RowsLocked(),
        TableLocked("share"),
        TableLocked("access exclusive"),
        SnapshotHeld(),
        PreparedHeld(),
        Sought(),
        Revived(),
        Upkeep("vacuum full"),
        Upkeep("reindex table concurrently"),
        Upkeep("analyze"),
        DiskFull(),
    ]
