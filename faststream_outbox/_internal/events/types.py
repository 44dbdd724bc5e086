"""Everything that happens, as types: the contract of metrics, logs and dashboards.

Each event is a frozen record; its docstring is its meaning. A message that was `Started` gets exactly
one closing event: `Handled`, `Retried`, `Died`, `Released`, `LeaseWasLost`, `OutcomeRefused` or `Abandoned`. Outcomes
are emitted only after the outcome was written. Emitted by the engines, heard through `events.Events`.
"""

from dataclasses import dataclass, field

from faststream_outbox._internal.events.far_end import (
    DeliveryHeldUp,
    DuplicateSkipped,
    ReceiptsCleaned,
    Received,
    RelayDown,
    Relayed,
    RelayUp,
    ResponseReplayed,
)


@dataclass(frozen=True, slots=True)
class Published:
    """Messages were committed, or could not be written; where a commit cannot be heard, they were written."""

    queue: str
    count: int
    size_bytes: int
    duration_seconds: float
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim came back with so many messages of a queue, one at least."""

    queue: str
    worker: str
    count: int


@dataclass(frozen=True, slots=True)
class MessageEvent:
    """Fields of whatever happens to one message; `group` is the reader's, of a topic."""

    queue: str
    worker: str
    id: int
    deliveries_count: int
    group: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Started(MessageEvent):
    """A handler begins."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Handled(MessageEvent):
    """Done, and deleted; so long after it was published, if that is known."""

    duration_seconds: float
    age_seconds: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Retried(MessageEvent):
    """Failed or put off; it is due again after the delay."""

    duration_seconds: float
    delay_seconds: float
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Died(MessageEvent):
    """Failed for good; kept as a dead letter if `kept`, else deleted."""

    duration_seconds: float
    reason: str
    kept: bool
    error: BaseException | None
    age_seconds: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Released(MessageEvent):
    """Given back; any worker may claim it at once."""

    was_started: bool


@dataclass(frozen=True, slots=True)
class LeaseWasLost(MessageEvent):
    """The lease was gone: while `waiting` for a handler, while `running`, or when `settling`."""

    phase: str


@dataclass(frozen=True, slots=True)
class Abandoned(MessageEvent):
    """The outcome could not be written before the process had to stop; the lease runs out by itself."""


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """Leases of messages still in flight began anew."""

    count: int


@dataclass(frozen=True, slots=True)
class OutcomeRefused(MessageEvent):
    """The server refused an outcome again and again because of its data; the message is set apart in the outbox."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class MessageSetApart:
    """A message could not be fetched again and again; it is set apart in the outbox, and others get through."""

    queue: str
    id: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class HookFailed:
    """A function of the application's, given as an option, raised."""

    hook: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class DrainTimedOut:
    """Handlers were still running when the time to stop was over; they were cancelled."""

    worker: str
    seconds: float
    running: int


@dataclass(frozen=True, slots=True)
class StillRunning:
    """Handlers did not end when they were cancelled, as in a thread; their messages stay leased until they do."""

    worker: str
    running: int


@dataclass(frozen=True, slots=True)
class LoopCrashed:
    """A background loop failed; it starts again after a pause."""

    name: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class LoopRestored:
    """A background loop that had crashed runs again."""

    name: str
    outage_seconds: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """Newly visible messages of a log got their place in its order; `late` ones had been overtaken by others."""

    log: str
    tick: int
    count: int
    late: int


@dataclass(frozen=True, slots=True)
class GapOld:
    """Numbers of a log are drawn and neither visible nor given up; only the sessions named may hold them."""

    log: str
    age_seconds: float
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GapClosed:
    """Of the numbers of a log that `GapOld` reported, none is open any more: their transactions have ended."""

    log: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class SequenceAdvanced:
    """The log's sequence lay behind its messages, as after a copy without sequences; it was moved on."""

    log: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SlotsHeld:
    """A member of a group holds another number of slots than before."""

    group: str
    uri: str
    member: str
    slots: int
    members: int


@dataclass(frozen=True, slots=True)
class KeyHalted:
    """So many messages wait behind one of their key that its whole slot stops; see to the one in front."""

    group: str
    uri: str
    key: str
    waiting: int


@dataclass(frozen=True, slots=True)
class GroupExpired:
    """A group has not read for so long that it does not hold messages back any more; it will miss some."""

    group: str
    uri: str
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class MessagesMissed:
    """Messages that waited in a group were deleted while it was away, as after `GroupExpired`; they are given up."""

    group: str
    uri: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogCleaned:
    """Retention has deleted messages of a log that were old and read, their ticks, or whole partitions."""

    log: str
    messages: int
    ticks: int
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionsMade:
    """Partitions of a log were made ahead of its numbers."""

    log: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLettersPurged:
    """Dead letters of a table were deleted because they were old enough."""

    table: str
    count: int


@dataclass(frozen=True, slots=True)
class SchemaDiffers:
    """Tables are missing or not as this version needs them: messages cannot be published or handled."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaFits:
    """The tables are as this version needs them, after they were not."""


@dataclass(frozen=True, slots=True)
class ChoreFailed:
    """Something that workers do to keep tables small has failed; it is tried again after the pause."""

    chore: str
    error: BaseException
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class ChoreRestored:
    """Something that workers do to keep tables small works again."""

    chore: str
    outage_seconds: float


@dataclass(frozen=True, slots=True)
class StatementFailed:
    """A statement failed on a connection of the library's own; it is tried again on a fresh one."""

    role: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class StatementWorks:
    """Statements of this role work again."""

    role: str
    outage_seconds: float


@dataclass(frozen=True, slots=True)
class ListenerReady:
    """LISTEN works: wake-ups from other processes arrive."""

    channel: str


@dataclass(frozen=True, slots=True)
class ListenerLost:
    """The LISTEN connection ended; polling fills in until it is back."""

    channel: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class ListenerDeaf:
    """LISTEN was accepted but nothing arrives, as behind a pooler in transaction mode; set `listen_dsn`."""

    channel: str


Event = (
    Published
    | Claimed
    | Started
    | Handled
    | Retried
    | Died
    | Released
    | LeaseWasLost
    | Abandoned
    | LeasesRenewed
    | OutcomeRefused
    | MessageSetApart
    | HookFailed
    | DrainTimedOut
    | StillRunning
    | LoopCrashed
    | LoopRestored
    | Ticked
    | GapOld
    | GapClosed
    | SequenceAdvanced
    | SlotsHeld
    | KeyHalted
    | GroupExpired
    | MessagesMissed
    | LogCleaned
    | PartitionsMade
    | DeadLettersPurged
    | Received
    | DuplicateSkipped
    | DeliveryHeldUp
    | ResponseReplayed
    | ReceiptsCleaned
    | ChoreFailed
    | ChoreRestored
    | Relayed
    | RelayDown
    | RelayUp
    | SchemaDiffers
    | SchemaFits
    | StatementFailed
    | StatementWorks
    | ListenerReady
    | ListenerLost
    | ListenerDeaf
)
"""Everything that can happen."""

ConnectionLost = StatementFailed
"""The former name of `StatementFailed`, until 2.0."""
ConnectionRestored = StatementWorks
"""The former name of `StatementWorks`, until 2.0."""
