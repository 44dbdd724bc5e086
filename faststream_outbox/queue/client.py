"""The client: everything that the workers of one process share for one table.

Four connections at most, however many workers and queues: one claims, one scans, one settles, renews,
watches and notifies, one listens. They open with the first worker and close with the last. The application's
engine is never closed. Built by the broker, or found by `OutboxClient.shared` for workers that are
made without one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.errors import ConnectionUnusable, InvalidOption, LeaseLost, WrongEventLoop
from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.events.journal import keep_journal
from faststream_outbox.outcomes.failure import Renderer, saying
from faststream_outbox.outcomes.outcome import FinalOutcome, Release, Retry
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.claimer import Claimer
from faststream_outbox.queue.intake import Intake
from faststream_outbox.queue.options import WorkerOptions
from faststream_outbox.queue.renewer import Renewer
from faststream_outbox.queue.scanner import SCAN_TIMEOUT, Scanner
from faststream_outbox.queue.settler import Settler
from faststream_outbox.queue.worker import Worker
from faststream_outbox.schema.given import check_tables
from faststream_outbox.schema.names import Names, quoted_name, schema_map_of
from faststream_outbox.service import Service
from faststream_outbox.sql import statements
from faststream_outbox.sql.isolation import Isolation, begin
from faststream_outbox.sql.through import AnySession, Rows, Through, through
from faststream_outbox.sql.wire import STATEMENT_TIMEOUT, Wire
from faststream_outbox.uncertain import Fate, commit
from faststream_outbox.wakeup import NotifyMode
from faststream_outbox.wakeup.hint import Hint
from faststream_outbox.wakeup.listener import Listener, listening
from faststream_outbox.wakeup.wakeups import Wakeups
from faststream_outbox.wakeup.watcher import Watcher

logger = logging.getLogger("faststream_outbox")

LOCK_SECONDS = 0.5
"""How long outcomes wait for a row that somebody has locked, before it is set apart and the others go on."""

MOST_AT_ONCE = 500
"""Messages of a statement in a handler's transaction: for many more, PostgreSQL would keep a plan of another day."""


class OutboxClient:
    """Connections, loops and wake-ups of one table in one process.

    engine: yours; never closed here, and its pool is not used for claiming.
    table: the queues' table, from make_outbox_table.
    dlq_table: the dead letters' table, from make_dlq_table; None deletes what fails for good.
    notify: how other processes hear of messages: "after_commit", "in_transaction" or "off".
    listen: hear other processes by LISTEN.
    listen_dsn: another address for LISTEN, past a pooler.
    watch: look for messages that nobody announced.
    events: who hears what happens; None makes an Events of its own.
    last_exception_renderer: makes the text that is stored and logged of an error; None takes its repr.
    log: the logger for failures and lost connections; None is silent.
    wires: makes connections, for tables in memory.
    """

    is_in_memory: ClassVar[bool] = False
    """Whether there is no database, as under the test broker."""
    _shared: ClassVar[WeakValueDictionary[tuple[int, str, str], "OutboxClient"]] = WeakValueDictionary()

    def __init__(
        self,
        engine: AsyncEngine,
        table: Table,
        *,
        dlq_table: Table | None = None,
        notify: NotifyMode = "after_commit",
        listen: bool = True,
        listen_dsn: str | None = None,
        watch: bool = True,
        events: Events | None = None,
        last_exception_renderer: Renderer | None = None,
        log: logging.Logger | None = logger,
        wires: Callable[[], Wire] | None = None,
    ) -> None:
        check_tables(table, dlq_table)
        self.engine = engine
        self.table = table
        self.dlq_table = dlq_table
        self.names = Names.of(table, dlq_table, schema_map_of(engine))
        self.events = events or Events()
        if log is not None:
            keep_journal(self.events, log, saying(last_exception_renderer))
        self.wakeups = Wakeups(engine, self.names, self.events, notify)
        self.isolation = Isolation()
        self._listens, self._listen_dsn, self._watches = listen, listen_dsn, watch
        self._renderer = last_exception_renderer
        self._wires = wires
        self._assemble()

    def _assemble(self) -> None:
        """Make what belongs to one event loop; in another one it is made anew."""
        engine, wires = self.engine, self._wires
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: list[Worker] = []
        self._claim_wire = Wire(engine) if wires is None else wires()
        self._scan_wire = Wire(engine, timeout=SCAN_TIMEOUT) if wires is None else wires()
        self._settle_wire = Wire(engine, lock_seconds=LOCK_SECONDS) if wires is None else wires()
        listen_wire = listening(engine, self._listen_dsn) if wires is None else wires()
        claim_sql, settle_sql = statements("claim", self.names), statements("settle", self.names)
        self.claimer = Claimer(self._claim_wire, claim_sql, self.events)
        scanner = Scanner(self._scan_wire, claim_sql, self.events, self.claimer)
        self.settler = Settler(
            self._settle_wire,
            settle_sql,
            self.events,
            self,
            has_dead_letters=self.dlq_table is not None,
            renderer=self._renderer,
        )
        renewer = Renewer(self._settle_wire, settle_sql, self.events, self._claims, self._ttls)
        self.listener = Listener(listen_wire, self.names, self.events, self._hinted, self.wakeups.sender)
        self._watcher = Watcher(self._last_id, self._poke, self._not_watching, lambda: self.listener.is_hearing)
        loops: list[tuple[str, Callable[[], Any]]] = [
            ("outbox claimer", self.claimer.run),
            ("outbox scanner", scanner.run),
            ("outbox settler", self.settler.run),
            ("outbox renewer", renewer.run),
        ]
        if self._listens:
            loops.append(("outbox listener", self.listener.run))
        if self._watches:
            loops.append(("outbox watcher", self._watcher.run))
        self._services = [Service(name, loop, self._crashed) for name, loop in loops]
        self._detach: Callable[[], None] | None = None
        self._changing = asyncio.Lock()

    def _move(self) -> None:
        """Belong to the running event loop: the one before may have ended without a stop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            if self._workers and self._loop.is_running():
                msg = "Workers of this client run in another event loop. Make a client for each loop."
                raise WrongEventLoop(msg)
            if self._detach is not None:
                self._detach()
            # Their connections went with the loop.
            self._assemble()
        self._loop = loop

    @classmethod
    def shared(cls, engine: AsyncEngine, table: Table, dlq_table: Table | None = None) -> "OutboxClient":
        """The client of this engine and table with default settings, made on first use."""
        # A client keeps its engine alive, so the engine's id is not another's while the client is known.
        name = (id(engine), quoted_name(table), "" if dlq_table is None else quoted_name(dlq_table))
        client = cls._shared.get(name)
        if client is None:
            client = cls._shared[name] = cls(engine, table, dlq_table=dlq_table)
        return client

    def check(self, options: WorkerOptions) -> None:
        """Refuse options that need what this client does not have."""
        if options.on_dead == "block" and self.dlq_table is None:
            msg = "on_dead='block' needs dead letters to hold the key: pass dlq_table=make_dlq_table(metadata)."
            raise InvalidOption(msg)

    @property
    def queues(self) -> set[str]:
        """The queues that workers of this process read."""
        return {queue for worker in self._workers for queue in worker.queues}

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that the workers need is alive; also so without workers."""
        return not self._workers or (
            all(service.is_running for service in self._services) and all(worker.is_healthy for worker in self._workers)
        )

    @property
    def is_cancelled(self) -> bool:
        """Whether the loops are being ended from outside, as at the end of `asyncio.run`."""
        return any(service.is_cancelled for service in self._services)

    async def attach(self, worker: Worker) -> Intake:
        """Serve this worker; the first one starts the loops."""
        self._move()
        async with self._changing:
            if worker not in self._workers:
                self._workers.append(worker)
            # A connection that died silently must be given up before the leases that wait for it run out.
            self._settle_wire.timeout = min(STATEMENT_TIMEOUT, max(1.0, min(self._ttls()) / 3))
            if self._detach is None:
                self._detach = self.wakeups.attach(self._hinted, self._settle_wire)
                for service in self._services:
                    service.start()
            return self.claimer.add(worker)

    async def detach(self, worker: Worker) -> None:
        """Serve this worker no more; the last one ends the loops and closes the connections."""
        async with self._changing:
            if worker in self._workers:
                self._workers.remove(worker)
            if self._workers or self._detach is None:
                return
            await self.wakeups.close()
            self._detach()
            self._detach = None
            for service in self._services:
                await service.stop()
            # All at once: each may have to give up a server that does not answer.
            wires = (self._claim_wire, self._scan_wire, self._settle_wire)
            await asyncio.gather(*(wire.close() for wire in wires))

    def settled(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        """Part of the settler's contract: pass the news on."""
        if not lost and isinstance(outcome, (Release, Retry)):
            # Others must know when it is due, in case we are not there any more.
            self.wakeups.tell(
                Hint(
                    claim.queue,
                    priorities=frozenset((claim.priority,)),
                    keyed=claim.key is not None,
                    keyless=claim.key is None,
                    due_in=(outcome.delay or 0.0) if isinstance(outcome, Retry) else 0.0,
                    scan=isinstance(outcome, Release),
                )
            )
        claim.worker.settled(claim, outcome, lost=lost)

    async def settle_within(self, session: AnySession, *claims: Claim) -> None:
        """Finish messages in the session's own transaction, or raise `LeaseLost`.

        The handler then returns `SETTLED` after its commit. The row's deletion commits with whatever else
        the transaction holds; when it rolls back, the message is still leased.
        """
        opened = await through(session, self.table)
        left: Sequence[Claim] = claims
        # A renewal at the same moment moves the row away from where it was found: the next statement sees it.
        for _ in range(2):
            ended = await _named_in(opened, "settle_within", left)
            left = [claim for claim in left if claim.id not in ended]
            if not left:
                break
        _refuse_lost(left)
        for claim in claims:
            claim.is_handed_over = True

    async def control(self, name: str, values: Mapping[str, Any], *, file: str = "control") -> Rows:
        """Run an operator's statement in a transaction of its own."""
        async with self.engine.begin() as connection:
            opened = await through(connection, self.table, self.dlq_table)
            return await opened.fetch(opened.sql(file, name), values)

    async def commit(self, session: AsyncSession, *claims: Claim) -> None:
        """Commit a transaction that these were finished in; raises only if that has not come about."""

        async def ask() -> Fate:
            sql = statements("settle", self.names)
            rows = await self._settle_wire.fetch(sql["renew"], _leases(claims))
            if rows:
                return Fate.ROLLED_BACK if all(row[1] for row in rows) else Fate.OPEN
            # Gone is finished, here or by whoever took them over since; those that are there are another's by now.
            others = await self._settle_wire.fetch(sql["remains"], {"ids": [claim.id for claim in claims]})
            return Fate.UNKNOWN if others else Fate.COMMITTED

        def tell(error: BaseException) -> None:
            self.events.emit(told.ConnectionLost("commit", error))

        try:
            await commit(session, ask, tell)
        except BaseException:
            for claim in claims:
                claim.is_handed_over = False
            raise

    async def lock_within(self, session: AnySession, *claims: Claim) -> None:
        """Hold messages in the session's own transaction until it ends, or raise `LeaseLost`.

        A transaction that is REPEATABLE READ or SERIALIZABLE needs this as its first statement: the renewal of
        the lease would otherwise be in conflict with `settle_within`. While it lives nobody else gets the
        messages, also when it takes longer than the lease.
        """
        opened = await through(session, self.table)
        held = await _named_in(opened, "lock", claims)
        _refuse_lost([claim for claim in claims if claim.id not in held])

    async def begin_within(self, session: AsyncSession, *claims: Claim) -> None:
        """Begin the transaction in which messages will be handled and finished, on a session of `open_session`."""

        async def lock() -> None:
            if await self.isolation.is_strict(session):
                await self.lock_within(session, *claims)

        await begin(session, lock)

    def open_session(self) -> AsyncSession:
        """A session for a transactional handler, which cannot be used any more once it is closed."""
        return AsyncSession(self.engine, expire_on_commit=False, close_resets_only=False)

    def abandon(self, worker: Worker) -> None:
        """Leave the worker's unwritten outcomes to the end of their leases."""
        for claim in self.settler.give_up(worker):
            self.events.emit(told.Abandoned(claim.queue, worker.name, claim.id, claim.deliveries_count))

    def _claims(self) -> Iterable[Claim]:
        return [claim for worker in self._workers for claim in worker.unsettled]

    def _ttls(self) -> Iterable[float]:
        return [worker.options.lease_ttl_seconds for worker in self._workers]

    def _hinted(self, hint: Hint) -> None:
        self._watcher.tide.account(hint.count)
        self.claimer.hint(hint)

    def _poke(self) -> None:
        # Also below the floors, and for priorities that nobody has seen: of such rows nothing is known.
        self.claimer.hint(Hint(None, scan=True))

    def _not_watching(self, error: Exception) -> None:
        self.events.emit(told.ConnectionLost("watch", error))

    async def _last_id(self) -> int | None:
        rows = await self._settle_wire.fetch(statements("control", self.names)["last_id"], {"table": self.names.table})
        last, sequence, is_allowed = rows[0]
        if is_allowed is False:
            msg = (
                f"The role may not read the sequence {sequence}, so messages that nobody announced wait for the next "
                f"look: GRANT SELECT ON SEQUENCE {sequence} TO its role, or turn watching off with watch=False."
            )
            raise ConnectionUnusable(msg)
        number: int | None = last
        return number

    def _crashed(self, name: str, error: BaseException) -> None:
        self.events.emit(told.LoopCrashed(name, error))


async def _named_in(opened: Through, name: str, claims: Sequence[Claim]) -> set[int]:
    """The ids that a statement on the application's connection returns of these claims."""
    found: set[int] = set()
    for start in range(0, len(claims), MOST_AT_ONCE):
        values = _leases(claims[start : start + MOST_AT_ONCE])
        found.update(row[0] for row in await opened.fetch(opened.sql("settle", name), values))
    return found


def _leases(claims: Sequence[Claim]) -> dict[str, list[Any]]:
    return {
        "ids": [claim.id for claim in claims],
        "tokens": [claim.acquired_token for claim in claims],
    }


def _refuse_lost(claims: Sequence[Claim]) -> None:
    for claim in claims:
        msg = f"The lease of message {claim.id} of {claim.queue!r} is gone; roll this transaction back."
        raise LeaseLost(msg)
