"""The client: everything that the workers of one process share for one table.

Four connections, however many workers and queues: one claims, one scans, one settles, renews, watches and notifies,
one listens; where there is a retention, two more that clean. They open with the first worker and close with the last.
The application's engine is never closed. Built by the broker, or found by `OutboxClient.shared` for workers that are
made without one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import AnySession, Rows, caller_connection
from faststream_outbox._internal.connections.dedicated import LOCK_PATIENCE, STATEMENT_TIMEOUT, Connection
from faststream_outbox._internal.connections.identity import Role
from faststream_outbox._internal.connections.transactions import Fate, begin, commit
from faststream_outbox._internal.engine import EngineClient
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.event_log import Log
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.janitor import Retention, Upkeep, checked_retention
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue.asking import Unheard
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.claimer import Claimer
from faststream_outbox._internal.queue.keys import Horizon
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.plan import Plans
from faststream_outbox._internal.queue.renewer import Renewer, named_in, refuse_lost, renewal_of
from faststream_outbox._internal.queue.scanner import SCAN_TIMEOUT, Scanner
from faststream_outbox._internal.queue.settler import Settler
from faststream_outbox._internal.schema.given import check_tables
from faststream_outbox._internal.schema.names import Names, quoted_name, schema_map_of
from faststream_outbox._internal.sql.queue_rows import LastIdRow, RenewedRow
from faststream_outbox._internal.sql.statements import named, statements
from faststream_outbox._internal.wakeup.hint import Hint, HintReceiver
from faststream_outbox._internal.wakeup.listener import Listener, listening
from faststream_outbox._internal.wakeup.wakeups import NotifyMode, Wakeups
from faststream_outbox._internal.wakeup.watcher import Watcher
from faststream_outbox.errors import ConnectionUnusable, InvalidOption

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


logger = logging.getLogger("faststream_outbox")

LOCK_SECONDS = 0.5
"""How long outcomes wait for a row that somebody has locked, before it is set apart and the others go on."""


class OutboxClient(EngineClient):
    """Connections, loops and wake-ups of one table in one process.

    engine: yours; never closed here, and its pool is not used for claiming.
    table: the queues' table, from make_outbox_table.
    dlq_table: the dead letters' table, from make_dlq_table; None deletes what fails for good.
    notify: how other processes hear of messages: "after_commit", "in_transaction" or "off".
    listen: hear other processes by LISTEN.
    listen_dsn: another address for LISTEN, past a pooler.
    watch: find messages that nobody announced, by watching the id sequence.
    events: who hears what happens; None makes an Events of its own.
    last_exception_renderer: makes the text that is stored and logged of an error; None takes its repr.
    log: the logger for failures and lost connections; None is silent.
    connections: makes connections, for tables in memory.
    retention: which dead letters workers delete by themselves, and when; None deletes none.
    """

    ELSEWHERE: ClassVar[str] = "Workers of this client run in another event loop. Make a client for each loop."
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
        log: Log | None = logger,
        connections: Callable[[], Connection] | None = None,
        retention: Retention | None = None,
    ) -> None:
        check_tables(table, dlq_table)
        self._retention = checked_retention(retention)
        if dlq_table is None and self._retention is not None and self._retention.dead_letters is not None:
            msg = "Retention(dead_letters=…) needs dead letters: pass dlq_table=make_dlq_table(metadata)."
            raise InvalidOption(msg)
        super().__init__(engine, events=events, log=log, renderer=last_exception_renderer)
        self.table = table
        self.dlq_table = dlq_table
        self.names: Names = Names.of(table, dlq_table, schema_map_of(engine))
        self.wakeups: Wakeups = Wakeups(engine, self.names, self.events, notify, self.identity)
        self._connections = connections
        self._listens, self._listen_dsn, self._watches = listen, listen_dsn, watch
        self._detach: Callable[[], None] | None = None
        self._assemble()

    def _assemble(self) -> None:
        super()._assemble()
        if self._detach is not None:
            self._detach()
        self._detach = None
        self._workers: list[Worker] = []
        self._claim_connection = self._connection("claim", lock_seconds=LOCK_PATIENCE)
        self._scan_connection = self._connection("scan", timeout=SCAN_TIMEOUT)
        self._settle_connection = self._connection("settle", lock_seconds=LOCK_SECONDS)
        claim_sql, settle_sql = statements("claim", self.names, "keys", "scan"), statements("settle", self.names)
        self.plans: Plans = Plans(Horizon(), Unheard())
        self.claimer: Claimer = Claimer(self.plans, self._claim_connection, claim_sql, self.events, self.identity.token)
        scanner = Scanner(self.plans, self._scan_connection, claim_sql, self.events, self.names.table)
        self.settler: Settler = Settler(
            self._settle_connection,
            settle_sql,
            self.events,
            has_dead_letters=self.dlq_table is not None,
            renderer=self.renderer,
        )
        renewer = Renewer(self._settle_connection, settle_sql, self.events, self._claims, self._ttls)
        self._watching = Outage("watch", self.events)
        self._watcher = Watcher(
            self._last_id,
            self._wake_claimer,
            self._not_watching,
            lambda: self._watching.worked(asyncio.get_running_loop().time()),
            lambda: self.listener is not None and self.listener.is_hearing,
        )
        self.outages: list[Outage] = [*self.claimer.outages, *scanner.outages, renewer.outage, self._watching]
        """What its loops cannot do at the moment, but for settling: the settler knows that itself."""
        self._serve("outbox claimer", self.claimer.run, self.claimer.pulse)
        self._serve("outbox scanner", scanner.run, scanner.pulse)
        self._serve("outbox settler", self.settler.run, self.settler.pulse)
        self._serve("outbox renewer", renewer.run, renewer.pulse)
        self.listener: Listener | None = None
        if self._listens:
            listen_connection = listening(self.engine, self._listen_dsn, self.identity)
            receiver = HintReceiver(self._hinted, self.wakeups.sender)
            self.listener = Listener(listen_connection, self.names, self.events, receiver, self.wakeups.sender)
            self._serve("outbox listener", self.listener.run, self.listener.pulse)
        if self._watches:
            self._serve("outbox watcher", self._watcher.run, self._watcher.pulse)
        policy = self._retention
        if policy is not None and policy.dead_letters is not None and self._connections is None:
            guard, connection = self._dedicated("guard"), self._dedicated("clean")
            upkeep = Upkeep(self.names, self.events, guard, connection, keep=policy.dead_letters, every=policy.every)
            self._serve("outbox janitor", upkeep.janitor.run)

    def _connection(self, role: Role, *, timeout: float = STATEMENT_TIMEOUT, lock_seconds: float = 0.0) -> Connection:
        if self._connections is not None:
            return self._connections()
        return self._dedicated(role, timeout=timeout, lock_seconds=lock_seconds)

    def _is_busy(self) -> bool:
        return bool(self._workers)

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
    def workers(self) -> Sequence["Worker"]:
        """The workers that it serves."""
        return tuple(self._workers)

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections whose answers show that the server is there."""
        return self._claim_connection, self._scan_connection, self._settle_connection

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that the workers need is alive; also so without workers."""
        return not self._workers or (
            all(service.is_running for service in self._services) and all(worker.is_healthy for worker in self._workers)
        )

    async def attach(self, worker: "Worker") -> None:
        """Serve this worker; the first one starts the loops."""
        self._move()
        async with self._changing:
            if worker not in self._workers:
                self._workers.append(worker)
            # A connection that died silently must be given up before the leases that wait for it run out.
            self._settle_connection.timeout = min(STATEMENT_TIMEOUT, max(1.0, min(self._ttls()) / 3))
            if self._detach is None:
                self._detach = self.wakeups.attach(self._hinted, self._settle_connection)
                for service in self._services:
                    service.start()
            self.plans.add(worker, asyncio.get_running_loop().time())

    async def detach(self, worker: "Worker") -> None:
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
            connections = (self._claim_connection, self._scan_connection, self._settle_connection)
            await asyncio.gather(*(connection.close() for connection in connections))

    async def settle_within(self, session: AnySession, *claims: Claim) -> None:
        """Finish messages in the session's own transaction, or raise `LeaseLost`.

        The handler then returns `SETTLED` after its commit. The row's deletion commits with whatever else
        the transaction holds; when it rolls back, the message is still leased.
        """
        opened = await caller_connection(session, self.table)
        left: Sequence[Claim] = claims
        # A renewal at the same moment moves the row away from where it was found: the next statement sees it.
        for _ in range(2):
            ended = await named_in(opened, "settle_within", left)
            left = [claim for claim in left if claim.id not in ended]
            if not left:
                break
        refuse_lost(left)
        for claim in claims:
            claim.is_handed_over = True

    async def control(self, name: str, values: Mapping[str, Any], *, file: str = "control") -> Rows:
        """Run an operator's statement in a transaction of its own."""
        async with self.engine.begin() as connection:
            opened = await caller_connection(connection, self.table, self.dlq_table)
            return await opened.fetch(opened.sql(file, name), values)

    async def commit(self, session: AsyncSession, *claims: Claim) -> None:
        """Commit a transaction that these were finished in; raises only if it was not committed."""

        async def ask() -> Fate:
            sql = statements("settle", self.names)
            rows = await self._settle_connection.fetch(sql["renew"], renewal_of(claims))
            if rows:
                is_free = all(row.is_renewed or row.has_run_out for row in named(RenewedRow, rows))
                return Fate.ROLLED_BACK if is_free else Fate.OPEN
            # Gone is finished, here or by whoever took them over since; those that are there are another's by now.
            others = await self._settle_connection.fetch(sql["remains"], {"ids": [claim.id for claim in claims]})
            return Fate.UNKNOWN if others else Fate.COMMITTED

        def tell(error: BaseException) -> None:
            self.events.emit(events.StatementFailed("commit", error))

        try:
            await commit(session, ask, tell)
        except BaseException:
            for claim in claims:
                claim.is_handed_over = False
            raise

    async def lock_within(self, session: AnySession, *claims: Claim) -> None:
        """Hold messages in the session's own transaction until it ends, or raise `LeaseLost`.

        A transaction that is REPEATABLE READ or SERIALIZABLE needs this as its first statement: the renewal of
        the lease would otherwise be in conflict with `settle_within`. A renewal just before it is a conflict too, after
        which to begin again, as `begin_within` does. While the transaction lives nobody else gets the messages, also
        when it takes longer than the lease.
        """
        opened = await caller_connection(session, self.table)
        held = await named_in(opened, "lock", claims)
        refuse_lost([claim for claim in claims if claim.id not in held])

    async def begin_within(self, session: AsyncSession, *claims: Claim) -> None:
        """Begin the transaction in which messages will be handled and finished, on a session of `open_session`."""

        async def lock() -> None:
            if await self.isolation.is_strict(session):
                await self.lock_within(session, *claims)

        await begin(session, lock)

    def abandon(self, worker: "Worker") -> None:
        """Leave the worker's unwritten outcomes to the end of their leases."""
        for claim in self.settler.give_up(worker):
            self.events.emit(events.Abandoned(claim.queue, worker.name, claim.id, claim.deliveries_count))

    def _claims(self) -> Iterable[Claim]:
        return [claim for worker in self._workers for claim in worker.unsettled]

    def _ttls(self) -> Iterable[float]:
        return [worker.options.lease_ttl_seconds for worker in self._workers]

    def _hinted(self, hint: Hint) -> None:
        self._watcher.tracker.account(hint.count, hint.last_id)
        self._hint(hint)

    def _wake_claimer(self) -> None:
        # Also below the floors, and for priorities that nobody has seen: of such rows nothing is known.
        self._hint(Hint(None, scan=True))

    def _hint(self, hint: Hint) -> None:
        self.plans.hint(hint, asyncio.get_running_loop().time())

    def _not_watching(self, error: Exception) -> None:
        self._watching.failed(error, asyncio.get_running_loop().time())

    async def _last_id(self) -> int | None:
        rows = await self._settle_connection.fetch(
            statements("control", self.names)["last_id"], {"table": self.names.table}
        )
        (row,) = named(LastIdRow, rows)
        if row.may_read is False:
            msg = (
                f"The role may not read the sequence {row.sequence}, so messages that nobody announced wait for the "
                f"next scan: GRANT SELECT ON SEQUENCE {row.sequence} TO its role, or turn watching off with "
                "watch=False."
            )
            raise ConnectionUnusable(msg)
        return row.last
