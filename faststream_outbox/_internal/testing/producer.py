"""The producer of the test broker: writes to tables in memory and, unless loops run, has messages handled at once.

What needs a session, and which, is refused as on PostgreSQL. Made by the test broker, called by the broker.
"""

import asyncio
from collections.abc import Sequence

from faststream.exceptions import SubscriberNotFound
from faststream.response import Response

from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.message import Received
from faststream_outbox._internal.broker.producer import OutboxProducer, Rows
from faststream_outbox._internal.broker.response import OutboxPublishCommand
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.broker.topic import check_log_tables, reporting
from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage as TopicMessage
from faststream_outbox._internal.memory.client import FakeOutboxClient
from faststream_outbox._internal.memory.log import MemoryLog, UnleasedEnd
from faststream_outbox._internal.memory.transaction import Opened
from faststream_outbox._internal.memory.writer import Appended, MemoryWriter
from faststream_outbox._internal.publish.put import Unprocessed
from faststream_outbox._internal.publish.rows import checked_batch, insertion
from faststream_outbox._internal.testing.delivering import Immediate, subscribers
from faststream_outbox._internal.wakeup.after_commit import call_after_commit
from faststream_outbox.errors import SessionRequired


class FakeProducer(OutboxProducer):
    """Writes to tables in memory."""

    def __init__(
        self,
        config: OutboxBrokerConfig,
        client: FakeOutboxClient,
        brokers: Sequence[OutboxBroker],
        immediate: Immediate | None,
    ) -> None:
        super().__init__(config, config.broker_parser, config.broker_decoder)
        self._client = client
        self._brokers = brokers
        self._immediate = immediate
        self._writer = MemoryWriter(client, handles_at_once=immediate is not None)

    def _session(self, cmd: OutboxPublishCommand) -> AnySession | None:
        try:
            return super()._session(cmd)
        except SessionRequired as error:
            msg = f"{error} In a test: session=fake_session(), from faststream_outbox.testing."
            raise SessionRequired(msg) from None

    def without_loop(self) -> OutboxProducer:
        """One that publishes through sync sessions."""
        return FakeSyncProducer(self._config, self._client, self._brokers, self._immediate)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        ids, written = self._writer.put(self._writer.opened(self._session(cmd)), checked_batch(rows))
        if self._immediate is not None:
            await self._immediate.handle(self._client.tables, written)
        return ids

    async def _append(self, cmd: OutboxPublishCommand, messages: Sequence[TopicMessage]) -> list[int | None]:
        positions, written = self._append_within(self._writer.opened(self._session(cmd)), cmd, messages)
        if self._immediate is not None:
            await self._immediate.deliver(self._client.log, written)
        return positions

    def _append_within(self, opened: Opened, cmd: OutboxPublishCommand, messages: Sequence[TopicMessage]) -> Appended:
        check_log_tables(self._config.log_tables)
        with reporting(self._client.events, cmd.destination, messages) as committed:
            appended = self._writer.append(opened, messages, cmd.on_duplicate)
            if opened.session is None:
                committed()
            else:
                call_after_commit(opened.session, committed)
            return appended

    async def cancel_timer(self, session: AnySession, queue: str, timer_id: str) -> bool:
        """Delete a timer that nobody holds."""
        return self._writer.cancel_timer(self._writer.opened(session), queue, timer_id)

    def cancel_timer_sync(self, session: AnySyncSession, queue: str, timer_id: str) -> bool:
        """The same through a sync session."""
        return self._writer.cancel_timer(self._writer.opened(session, is_sync=True), queue, timer_id)

    async def fetch_unprocessed(self, session: AnySession, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        return self._writer.unprocessed(self._writer.opened(session), queue, limit)

    async def request(self, cmd: OutboxPublishCommand) -> Received:
        """Handle at once, and answer with what the handler returned."""
        client, name = self._client, cmd.destination
        for other, subscriber in subscribers(self._brokers):
            if subscriber.group is None and other.tables is client.tables and name in subscriber.queues:
                return await self._request_queue(cmd, subscriber)
        for other, subscriber in subscribers(self._brokers):
            if subscriber.group is not None and other.log is client.log and name in subscriber.queues:
                return await self._request_topic(cmd, subscriber)
        raise SubscriberNotFound

    async def _request_queue(self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber) -> Received:
        tables = self._client.tables

        async def claim(command: OutboxPublishCommand) -> Received:
            # Not in the table: nobody else is to handle it.
            [(row_id,)] = tables.answer(*insertion(checked_batch([await self._envelope(command)])))
            made = next(row for row in tables.rows if row.id == row_id)
            tables.rows.remove(made)
            return self._client.lease(made, subscriber.make_worker())

        return await claim(await self._answered(cmd, subscriber, await claim(cmd)))

    async def _request_topic(self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber) -> Received:
        async def deliver(command: OutboxPublishCommand) -> Received:
            [row] = MemoryLog().append([await self._topic_message(command)])
            delivery = Delivery(row, command.destination)
            delivery.batch_run = UnleasedEnd()
            return delivery

        return await deliver(await self._answered(cmd, subscriber, await deliver(cmd)))

    async def _answered(
        self, cmd: OutboxPublishCommand, subscriber: OutboxSubscriber, taken: Received
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
        return self._writer.opened(cmd.session, is_sync=True)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        ids, written = self._writer.put(self._sync_session(cmd), checked_batch(rows))
        if self._immediate is not None:
            self._immediate.later(self._client, written, [])
        return ids

    async def _append(self, cmd: OutboxPublishCommand, messages: Sequence[TopicMessage]) -> list[int | None]:
        positions, written = self._append_within(self._sync_session(cmd), cmd, messages)
        if self._immediate is not None:
            self._immediate.later(self._client, [], written)
        return positions
