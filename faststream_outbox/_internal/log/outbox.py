"""`Outbox`: the ordered log, for applications without FastStream.

`publish` writes in the caller's transaction. `dispatch` handles one batch, `run` handles until it is asked
to stop, `async for` hands out messages one by one. Every consumer group reads everything, in order per URI,
and can be put anywhere in the log. A handler that raises has its message deferred, and tried again later.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, overload

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.envelope import OnDuplicate
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.janitor import Retention, checked_retention
from faststream_outbox._internal.log.admin.groups import Groups
from faststream_outbox._internal.log.admin.operators import GroupAdmin, group_of
from faststream_outbox._internal.log.admin.parked import Parking
from faststream_outbox._internal.log.admin.partitions import creating, has_parts, make_rest
from faststream_outbox._internal.log.append import Token, append, append_sync
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.dispatching import Dispatched, Subscriber, Tally, deliveries, plainly
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.member import Member
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.log.options import CRASH_LIMIT, OnParked, ReadOptions, Start, checked_share
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.renewer import renew_leases
from faststream_outbox._internal.log.sharing.slots import partition
from faststream_outbox._internal.log.transactional import TransactionalSubscriber, handle_in_transaction
from faststream_outbox._internal.log.worker import Consumer
from faststream_outbox._internal.options import check_count, check_seconds
from faststream_outbox._internal.outcomes.calling import apart, in_time
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.outcomes.outcome import DONE
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY
from faststream_outbox._internal.schema.check import validate_log_schema
from faststream_outbox._internal.schema.given import check_log
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from faststream_outbox._internal.schema.names import check_plain_name, schema_map_of, schema_of
from faststream_outbox._internal.service import unbroken
from faststream_outbox.errors import InvalidOption, InvalidOptionType, LeaseLost


class Outbox(GroupAdmin):
    """An ordered log on PostgreSQL, with consumer groups.

    session_pool: an AsyncEngine, or an async_sessionmaker that is bound to one; it stays yours.
    outbox_table: the name of the log; the other tables are named after it.
    offsets_table: another name for the table of positions than `…_offsets`.
    batch_size: most messages of one read.
    tables: tables from make_log_tables, instead of the names.
    schema: the schema of the tables, without `tables`.
    lease_ttl_seconds: how soon the slots of a killed process are taken over.
    retry_strategy: when a failed message comes again; None is ten attempts within about nine minutes.
    on_parked: whether the next messages of a parked one's URI go on ("skip") or wait ("hold_key").
    max_deferred: so many messages may wait behind one of their URI; then its slot stops.
    crash_limit: so many processes in a row may die with one message; then it is parked.
    start: where a group begins that has never read: "earliest", "latest", or a time with a time zone.
    strict_key_order: lock a message's URI until the commit, so that its publishers follow each other.
    listen: hear other processes by LISTEN.
    listen_dsn: another address for LISTEN, past a pooler.
    events: an Events of your own; None makes one, and logs what is noteworthy.
    last_exception_renderer: makes the text that is stored and logged of an error; None takes its repr.
    retention: what processes that read delete by themselves, and when; None deletes nothing.
    """

    def __init__(
        self,
        session_pool: AsyncEngine | async_sessionmaker[AsyncSession],
        outbox_table: str = "outbox",
        offsets_table: str | None = None,
        batch_size: int = 100,
        *,
        tables: LogTables | None = None,
        schema: str | None = None,
        lease_ttl_seconds: float = 15.0,
        retry_strategy: object = None,
        on_parked: OnParked = "skip",
        max_deferred: int = 10_000,
        start: Start = "earliest",
        crash_limit: int = CRASH_LIMIT,
        strict_key_order: bool = False,
        listen: bool = True,
        listen_dsn: str | None = None,
        events: Events | None = None,
        last_exception_renderer: Renderer | None = None,
        retention: Retention | None = None,
    ) -> None:
        policy = checked_retention(retention)
        if policy is not None and policy.dead_letters is not None:
            msg = "Retention(dead_letters=…) is for queues: give it to the broker or to an OutboxClient."
            raise InvalidOption(msg)
        if schema is not None:
            check_plain_name("schema", schema)
        self.engine: AsyncEngine = _engine_of(session_pool)
        check_log(tables, "tables")
        self.tables: LogTables = tables or make_log_tables(MetaData(schema=schema), outbox_table, offsets_table)
        self.options: ReadOptions = ReadOptions(
            batch_size=batch_size,
            lease_ttl_seconds=lease_ttl_seconds,
            retry_strategy=DEFAULT_RETRY if retry_strategy is None else retry_strategy,
            on_parked=on_parked,
            max_deferred=max_deferred,
            start=start,
            crash_limit=crash_limit,
        )
        self._strict = strict_key_order
        self.client: LogClient = LogClient(
            self.engine,
            self.tables,
            events=events,
            listen=listen,
            listen_dsn=listen_dsn,
            last_exception_renderer=last_exception_renderer,
            retention=policy,
        )
        self.parked: Parking = Parking(self.client)
        self.groups: Groups = Groups(self.client)

    async def setup(self) -> None:
        """Create what is missing of the tables, and repair the sequence after a copy that did not carry it.

        Many processes may call it at once, and at every start. It writes no row, so that data can be restored after it.
        """
        metadata = self.tables.log.metadata
        async with creating(self.engine, self.tables) as connection:
            await connection.run_sync(lambda sync: metadata.create_all(sync, tables=list(self.tables.all)))
            schema = schema_of(self.tables.log, schema_map_of(self.engine))
            if self.tables.is_partitioned and not await has_parts(connection, self.tables, schema):
                await make_rest(connection, self.tables, schema)
        await self.client.sequencer.progress(make_head=False)

    async def validate_schema(self, *, check_rights: bool = False) -> None:
        """Raise `SchemaMismatch` with every difference and its fix, if the tables are not as they should be.

        check_rights: look at what the engine's role may do, as one that reads topics.
        """
        await validate_log_schema(self.engine, self.tables, check_rights=check_rights)

    async def cleanup(self) -> None:
        """Stop what runs and close the connections; the engine stays open."""
        await self.client.close()

    async def __aenter__(self) -> "Outbox":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.cleanup()

    async def publish(
        self, session: AnySession, *messages: OutboxMessage, on_duplicate: OnDuplicate = "error"
    ) -> Token:
        """Write messages in the session's transaction, with one statement; a token to wait by.

        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        messages: what to publish, in this order.
        on_duplicate: what an event_id means that is in the log already: "error", or "ignore" to leave the message out.
        """
        return await append(
            session,
            self.tables,
            messages,
            on_duplicate=on_duplicate,
            strict_key_order=self._strict,
            tell=self.client.published,
        )

    def publish_sync(
        self, session: AnySyncSession, *messages: OutboxMessage, on_duplicate: OnDuplicate = "error"
    ) -> Token:
        """As `publish`, for a sync Session or Connection, with no event loop.

        session: whose transaction it belongs to: a Session, a Connection, or a DB-API connection of psycopg.
        messages: what to publish, in this order.
        on_duplicate: what an event_id means that is in the log already: "error", or "ignore" to leave the message out.
        """
        return append_sync(session, self.tables, messages, on_duplicate=on_duplicate, strict_key_order=self._strict)

    @overload
    async def dispatch(
        self,
        subscriber: Subscriber,
        consumer_group: str = "",
        uri: str = "",
        worker_id: int = 0,
        num_workers: int = 1,
        *,
        batch_size: int | None = None,
    ) -> Dispatched: ...

    @overload
    async def dispatch(
        self,
        subscriber: TransactionalSubscriber,
        consumer_group: str = "",
        uri: str = "",
        worker_id: int = 0,
        num_workers: int = 1,
        *,
        transactional: bool,
        batch_size: int | None = None,
    ) -> Dispatched: ...

    async def dispatch(
        self,
        subscriber: Any,
        consumer_group: str = "",
        uri: str = "",
        worker_id: int = 0,
        num_workers: int = 1,
        *,
        transactional: bool = False,
        batch_size: int | None = None,
    ) -> Dispatched:
        """Handle the next batch of a group, and give its slots back; what was done, true if anything.

        Does nothing while another process reads the group's slots.

        subscriber: called with each message, and with the session of a transactional one; an error means: later again.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        worker_id: which static share of the slots this is, from 0 on.
        num_workers: how many shares there are.
        transactional: give the subscriber a session whose commit also moves the group on.
        batch_size: most messages, instead of the outbox's own.
        """
        share = partition(*checked_share(worker_id, num_workers, "worker_id and num_workers"))
        if batch_size is not None:
            check_count("batch_size", batch_size)
        reader = self._reader(consumer_group, uri, fixed=share)
        member, tally = reader.member, Tally()
        reader.settler.reported = tally.hear
        renewing = self._renew_by_and_by(member)
        try:
            await reader.arrange()
            if reader.is_turn_of_fresh:
                await self.client.sequencer.catch_up()
            batch = await reader.next_batch(batch_size)
            if batch is None:
                await self.client.sequencer.catch_up()
                batch = await reader.next_batch(batch_size, is_idle=True)
            if batch is None:
                return Dispatched()
            batch_run = BatchRun(member, reader.settler, batch)
            if transactional:
                with suppress(LeaseLost):
                    # Rolled back, or done before without our hearing of it: the next dispatch begins at the truth.
                    await handle_in_transaction(batch_run, subscriber)
            else:
                await batch_run.run(plainly(subscriber), release=True)
            return tally.dispatched(batch.passed + batch.stopped)
        finally:
            renewing()
            await unbroken(_given_back(reader))

    def _renew_by_and_by(self, member: Member) -> Callable[[], None]:
        """Keep the leases alive while a handler takes its time; costs nothing where it does not."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()
        timer: asyncio.TimerHandle

        def renew() -> None:
            nonlocal timer
            running.add(loop.create_task(renew_leases(self.client.connection, [member.leases])))
            timer = loop.call_later(member.options.lease_ttl_seconds / 4, renew)

        def end() -> None:
            timer.cancel()

        timer = loop.call_later(member.options.lease_ttl_seconds / 4, renew)
        return end

    async def run(
        self,
        subscriber: Any,
        consumer_group: str = "",
        uri: str = "",
        process_id: int = 0,
        num_processes: int = 1,
        concurrency: int = 1,
        poll_interval: float = 1.0,
        stop_event: asyncio.Event | None = None,
        *,
        transactional: bool = False,
        handler_timeout: float | None = None,
    ) -> None:
        """Handle messages of a group until `stop_event` is set, or until cancelled.

        Processes that call this with the same group share its slots by themselves. With `num_processes`
        the shares are fixed, as in `process_id * concurrency + local_id` of `num_processes * concurrency`.

        subscriber: called with each message, and with the session of a transactional one; an error means: later again.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        process_id: which of the processes with fixed shares this is, from 0 on.
        num_processes: how many of them there are; 1 is no fixed shares.
        concurrency: how many messages are handled at the same time, each of another URI.
        poll_interval: seconds between reads when there is no news; not the latency.
        stop_event: ends it when set; messages in flight are finished.
        transactional: give the subscriber a session whose commit also moves the group on.
        handler_timeout: seconds after which a call of the subscriber is cancelled and has failed; None is no limit.
        """
        if handler_timeout is not None:
            check_seconds("handler_timeout", handler_timeout)
        handle = _handler(in_time(apart(subscriber), handler_timeout), transactional=transactional)
        checked_share(process_id, num_processes, "process_id and num_processes")
        checked_share(0, concurrency, "concurrency")
        total = num_processes * concurrency
        checked_share(0, total, "num_processes times concurrency")
        consumers: list[Consumer] = []
        for local in range(concurrency):
            share = partition(process_id * concurrency + local, total) if num_processes > 1 else None
            reader = self._reader(consumer_group, uri, fixed=share, poll_interval=poll_interval)
            consumers.append(Consumer(reader, self.client, handle))
        stopped = stop_event or asyncio.Event()
        try:
            await Consumer.start_all(self.client, consumers)
            await stopped.wait()
        except asyncio.CancelledError:
            # Now is now: messages in flight are left to the next one who reads.
            await asyncio.shield(_stopped(consumers, timeout=0.0))
            raise
        await _stopped(consumers, timeout=None)

    def __aiter__(self) -> AsyncIterator[OutboxMessage]:
        return self.messages()

    async def messages(self, consumer_group: str = "", uri: str = "") -> AsyncIterator[OutboxMessage]:
        """Messages of a group, for ever; each is handled when the next one is asked for.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        handed = deliveries(self._reader(consumer_group, uri), self.client, undecided=DONE)
        try:
            async for delivery in handed:
                yield delivery.message
        finally:
            await handed.aclose()  # type: ignore[attr-defined]  # a generator, said to be an iterator

    def deliveries(self, consumer_group: str = "", uri: str = "") -> AsyncIterator[Delivery]:
        """Deliveries of a group, for ever: `async with delivery as message`, or ack, nack and park by hand.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return deliveries(self._reader(consumer_group, uri), self.client)

    def _reader(
        self, group: str, uri: str, *, fixed: tuple[int, int] | None = None, poll_interval: float = 1.0
    ) -> Reader:
        options = replace(self.options, poll_interval=poll_interval)
        return Reader.of(self.client, group_of(group, uri), options, fixed=fixed)


def _engine_of(pool: Any) -> AsyncEngine:
    if isinstance(pool, AsyncEngine):
        return pool
    bound = pool.kw.get("bind") if isinstance(pool, async_sessionmaker) else None
    if isinstance(bound, AsyncEngine):
        return bound
    msg = f"session_pool must be an AsyncEngine, or an async_sessionmaker bound to one, not {pool!r}."
    raise InvalidOptionType(msg)


async def _stopped(consumers: Sequence[Consumer], timeout: float | None) -> None:
    await asyncio.gather(*(consumer.stop(timeout) for consumer in consumers))


async def _given_back(reader: Reader) -> None:
    member = reader.member
    await reader.settler.write_progress(release=True)
    if member.leases.spans or member.is_unsettled:
        await member.leases.give_back()


def _handler(subscriber: Any, *, transactional: bool) -> Callable[[BatchRun], Awaitable[None]]:
    if transactional:
        return lambda batch_run: handle_in_transaction(batch_run, subscriber)

    call = plainly(subscriber)
    return lambda batch_run: batch_run.run(call)
