"""The producer of the test broker: writes to tables in memory and, unless loops run, has messages handled at once.

What needs a session, and which, is refused as on PostgreSQL. Made by `testing`, called by the broker.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, cast

from faststream.exceptions import SubscriberNotFound
from faststream.response import Response

from faststream_outbox.broker.broker import OutboxBroker
from faststream_outbox.broker.config import OutboxBrokerConfig
from faststream_outbox.broker.fake_client import FakeOutboxClient
from faststream_outbox.broker.immediate import Immediate
from faststream_outbox.broker.memory import MemoryRow
from faststream_outbox.broker.memory_log import MemoryLog, UnleasedHandling
from faststream_outbox.broker.memory_transaction import MemoryTransaction, Opened
from faststream_outbox.broker.message import Taken
from faststream_outbox.broker.producer import OutboxProducer, Rows, as_topic_message, telling
from faststream_outbox.broker.reading import subscribers
from faststream_outbox.broker.response import OutboxPublishCommand
from faststream_outbox.broker.subscriber import OutboxSubscriber
from faststream_outbox.broker.topic import check_log_tables
from faststream_outbox.envelope import CheckedEnvelope, Envelope, checked_queue, checked_text
from faststream_outbox.errors import SessionRequired
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.overview import Unprocessed, as_unprocessed
from faststream_outbox.publish.put import tell_published
from faststream_outbox.publish.rows import checked_batch, hints_of, ids_of, insertion
from faststream_outbox.sql.through import AnySession, AnySyncSession
from faststream_outbox.sql.wire import Row
from faststream_outbox.wakeup.after_commit import tell_after_commit
from faststream_outbox.wakeup.hint import Hint


class Put(NamedTuple):
    """What was written to queues."""

    ids: list[int | None]
    rows: list[MemoryRow]
    """What may be handled at once."""


class FakeProducer(OutboxProducer):
    """Writes to tables in memory."""

    def __init__(
        self, config: OutboxBrokerConfig, brokers: Sequence[OutboxBroker], immediate: Immediate | None
    ) -> None:
        super().__init__(config, config.broker_parser, config.broker_decoder)
        self._brokers = brokers
        self._immediate = immediate

    def _session(self, cmd: OutboxPublishCommand) -> AnySession | None:
        try:
            return super()._session(cmd)
        except SessionRequired as error:
            msg = f"{error} In a test: session=fake_session(), from faststream_outbox.testing."
            raise SessionRequired(msg) from None

    @property
    def _client(self) -> FakeOutboxClient:
        return cast("FakeOutboxClient", self._config.client)

    def without_loop(self) -> OutboxProducer:
        """One that publishes through sync sessions."""
        return FakeSyncProducer(self._config, self._brokers, self._immediate)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        ids, written = self._put(self._opened(self._session(cmd)), checked_batch(rows))
        if self._immediate is not None:
            await self._immediate.handle(self._client.tables, written)
        return ids

    async def _append(self, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]) -> list[int | None]:
        positions, written = self._put_topic(self._opened(self._session(cmd)), cmd, envelopes)
        if self._immediate is not None:
            await self._immediate.deliver(self._client.log, written)
        return positions

    def _opened(self, session: Any, *, is_sync: bool = False) -> Opened:
        return Opened(session, is_hidden=self._immediate is None, is_sync=is_sync)

    def _put(self, opened: Opened, rows: Sequence[CheckedEnvelope]) -> Put:
        """Write to queues, and tell of it now or after the commit."""
        client, began = self._client, perf_counter()
        ids = ids_of(rows, self._answer(opened, *insertion(rows)))
        tell_published(client.events, rows, began)
        hidden = _hidden(opened)
        there = client.rows if hidden is None else hidden.own(client.tables)
        written = [row for row in there if row.id in ids]
        hints = hints_of(rows, ids)
        if opened.session is not None:
            # A session that forgets its commit is noticed.
            tell_after_commit(opened.session, _nobody, hints)
        if hidden is None:
            self._wake(hints)
            return Put(ids, written)
        hidden.then(
            partial(self._wake, hints) if self._immediate is None else partial(client.committed.extend, written)
        )
        return Put(ids, [])

    def _put_topic(
        self, opened: Opened, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]
    ) -> tuple[list[int | None], list[Row]]:
        """Write to a topic, and tell of it now or after the commit."""
        client = self._client
        check_log_tables(self._config.log_tables)
        messages = [as_topic_message(each) for each in envelopes]
        with telling(client.events, cmd.destination, envelopes):
            if opened.transaction is None:
                rows = client.log.append(messages, cmd.on_duplicate)
                client.log.keep(rows)
            else:
                rows = opened.transaction.append(client.log, messages, cmd.on_duplicate, opened.scopes)
        positions: list[int | None] = [row[1] for row in rows]
        if opened.session is not None:
            tell_after_commit(opened.session, _nobody, [Hint(None)])
        hidden = _hidden(opened)
        if hidden is None:
            client.topics_changed()
            return positions, rows
        is_looped = self._immediate is None
        hidden.then(client.topics_changed if is_looped else partial(client.committed_to_topics.extend, rows))
        return positions, []

    def _answer(self, opened: Opened, name: str, values: Any) -> list[Row]:
        if opened.transaction is None:
            return self._client.tables.answer(name, values)
        return opened.transaction.answer(self._client.tables, name, values, opened.scopes)

    def _wake(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            self._client.wakeups.tell(hint)

    async def cancel_timer(self, session: AnySession, queue: str, timer_id: str) -> bool:
        """Delete a timer that nobody holds."""
        return bool(self._answer(self._opened(session), "cancel_timer", _timer(queue, timer_id)))

    def cancel_timer_sync(self, session: AnySyncSession, queue: str, timer_id: str) -> bool:
        """The same through a sync session."""
        return bool(self._answer(self._opened(session, is_sync=True), "cancel_timer", _timer(queue, timer_id)))

    async def fetch_unprocessed(self, session: AnySession, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        name = "unprocessed" if queue is None else "unprocessed_of_queue"
        rows = self._answer(self._opened(session), name, {"queue": queue, "limit": limit})
        return [as_unprocessed(row) for row in rows]

    async def request(self, cmd: OutboxPublishCommand) -> Taken:
        """Handle at once, and answer with what the handler returned."""
        client, name = self._client, cmd.destination
        for other, subscriber in subscribers(self._brokers):
            if subscriber.group is None and other.tables is client.tables and name in subscriber.queues:
                return await self._request_queue(cmd, subscriber)
        for other, subscriber in subscribers(self._brokers):
            if subscriber.group is not None and other.log is client.log and name in subscriber.queues:
                return await self._request_topic(cmd, subscriber)
        raise SubscriberNotFound

    async def _request_queue(self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber) -> Taken:
        tables = self._client.tables

        async def claim(command: OutboxPublishCommand) -> Taken:
            # Not in the table: nobody else is to handle it.
            [(row_id,)] = tables.answer(*insertion(checked_batch([await self._envelope(command)])))
            made = next(row for row in tables.rows if row.id == row_id)
            tables.rows.remove(made)
            return self._client.lease(made, subscriber.make_worker())

        return await claim(await self._answered(cmd, subscriber, await claim(cmd)))

    async def _request_topic(self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber) -> Taken:
        async def deliver(command: OutboxPublishCommand) -> Taken:
            [row] = MemoryLog().append([as_topic_message(await self._envelope(command))])
            delivery = Delivery(row, command.destination)
            delivery.handling = UnleasedHandling()
            return delivery

        return await deliver(await self._answered(cmd, subscriber, await deliver(cmd)))

    async def _answered(
        self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber, taken: Taken
    ) -> OutboxPublishCommand:
        """What the handler answered, as a message."""
        async with asyncio.timeout(cmd.timeout):
            result: Response = await subscriber.process_message([taken] if subscriber.options.batch else taken)
        return OutboxPublishCommand(
            result.body, queue=cmd.destination, headers=result.headers, correlation_id=result.correlation_id
        )


class FakeSyncProducer(FakeProducer):
    """The same through a sync session; handlers run when the event loop has its turn."""

    def _sync_session(self, cmd: OutboxPublishCommand) -> Opened:
        if cmd.session is None:
            # Says that it is needed.
            super()._session(cmd)
        return self._opened(cmd.session, is_sync=True)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        ids, written = self._put(self._sync_session(cmd), checked_batch(rows))
        if self._immediate is not None:
            self._immediate.later(self._client, written, [])
        return ids

    async def _append(self, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]) -> list[int | None]:
        positions, written = self._put_topic(self._sync_session(cmd), cmd, envelopes)
        if self._immediate is not None:
            self._immediate.later(self._client, [], written)
        return positions


def _hidden(opened: Opened) -> MemoryTransaction | None:
    transaction = opened.transaction
    return transaction if transaction is not None and transaction.is_hidden else None


def _nobody(_: Hint) -> None: ...


def _timer(queue: object, timer_id: object) -> dict[str, Any]:
    return {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}
