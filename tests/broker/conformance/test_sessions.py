"""Whose transaction a message belongs to: sessions that commit, roll back or are forgotten, with and without a loop."""

import pytest
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox.errors import OutboxWarning, SessionRequired, UnsupportedSession
from tests.broker.conformance.differences import AT_ONCE, LOOPS, MEMORY, differs
from tests.broker.conformance.ways import Seen, Way, answering, noting


async def test_session_is_needed(way: Way, broker: OutboxBroker) -> None:
    publisher = broker.publisher("nobody")
    async with way.running(broker):
        for publishing in (
            broker.publish(1, "nobody"),
            broker.publish_batch(1, 2, queue="nobody"),
            publisher.publish(1),
        ):
            with pytest.raises(SessionRequired, match="publish needs the session"):
                await publishing
        await way.empty()


async def test_session_is_not_needed_where_it_is_said_once(way: Way, seen: Seen) -> None:
    broker = way.broker(autocommit=True)
    noting(broker, seen)
    async with way.running(broker):
        await broker.publish(1, "orders")
        await broker.publish_batch(2, 3, queue="orders")
        assert sorted(await seen.first(3)) == [1, 2, 3]


async def test_something_else_is_no_session(way: Way, broker: OutboxBroker) -> None:
    with way.open_sync_session() as sync_session:
        async with way.running(broker), way.open_session() as session:
            for wrong in (sync_session, "a session"):
                with pytest.raises(UnsupportedSession, match="session is a"):
                    await broker.publish(1, "nobody", session=wrong)  # type: ignore[arg-type]
                with pytest.raises(UnsupportedSession, match="session is a"):
                    await broker.cancel_timer(queue="nobody", timer_id="t", session=wrong)  # type: ignore[arg-type]
            with pytest.raises(UnsupportedSession, match="use publish"):
                broker.publish_sync(1, "nobody", session=session)  # type: ignore[arg-type]
            await session.rollback()


async def test_commit_publishes_and_rollback_does_not(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker), way.open_session() as session:
        await broker.publish(1, "nobody", session=session)
        await session.rollback()
        await broker.publish(2, "nobody", session=session)
        await session.commit()
        await broker.publish(3, "nobody", session=session)
        await session.rollback()
        await way.becomes("nobody", b"2")


async def test_forgotten_commit_publishes_nothing_and_warns(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker):
        with pytest.warns(OutboxWarning, match="commit"):
            async with way.open_session() as session:
                await broker.publish(1, "nobody", session=session)
        await way.empty()


async def test_savepoint_that_is_rolled_back_takes_its_own_back(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker), way.open_session() as session, session.begin():
        await broker.publish(1, "nobody", session=session)
        savepoint = await session.begin_nested()
        await broker.publish(2, "nobody", session=session)
        await savepoint.rollback()
        async with session.begin_nested():
            await broker.publish(3, "nobody", session=session)
    assert await way.bodies("nobody") == [b"1", b"3"]


async def test_rollback_gives_a_timer_back(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker), way.open_session() as session:
        await way.publish(1, "nobody", timer_id="t")
        assert await broker.cancel_timer(queue="nobody", timer_id="t", session=session)
        await session.rollback()
        await way.becomes("nobody", b"1")


@differs(AT_ONCE)
async def test_nobody_sees_a_message_before_its_commit(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with way.running(broker), way.open_session() as session:
        await broker.publish(1, "orders", session=session)
        assert await way.rows() == []
        await way.publish(2, "orders")
        assert await seen.first() == [2]
        await session.commit()
        assert await seen.first(2) == [2, 1]


async def test_session_sees_its_own(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker), way.open_session() as session:
        await broker.publish(1, "nobody", session=session)
        found = await broker.fetch_unprocessed(session=session)
        assert [row.payload for row in found] == [b"1"]
        await session.rollback()
        assert await broker.fetch_unprocessed(session=session) == []
        await session.rollback()


async def test_session_without_a_loop_publishes_with_its_commit(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with way.running(broker):
        with way.open_sync_session() as session:
            broker.publish_sync(1, "orders", session=session)
            session.rollback()
        with way.open_sync_session() as session, session.begin():
            assert isinstance(broker.publish_sync(2, "orders", session=session), int)
        assert await seen.first() == [2]
        await way.empty()


async def test_timer_is_taken_back_without_a_loop(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker):
        await way.publish(1, "nobody", timer_id="t")
        with way.open_sync_session() as session, session.begin():
            assert broker.cancel_timer_sync(queue="nobody", timer_id="t", session=session)
            assert not broker.cancel_timer_sync(queue="nobody", timer_id="t", session=session)
        await way.empty()


async def test_schema_can_be_checked(way: Way) -> None:
    broker = way.broker(log_tables=None)
    async with way.running(broker):
        await broker.validate_schema()
        assert await broker.ping(timeout=30)


async def test_two_brokers_of_one_table_share_their_messages(way: Way, seen: Seen) -> None:
    first, second = way.broker(), way.broker()
    noting(first, seen, "answers")
    second.publisher("answers")(answering(second))
    async with way.running(first, second):
        await way.publish(1, "orders")
        assert await seen.first() == [2]
        await way.empty()


@pytest.mark.parametrize("name", [MEMORY, LOOPS])
async def test_two_brokers_of_two_tables_do_not_hear_each_other(name: str, seen: Seen) -> None:
    way, metadata = Way(name), MetaData()
    first = way.broker()
    other = way.broker(outbox_table=make_outbox_table(metadata, "other"), dlq_table=make_dlq_table(metadata, "dead"))
    noting(other, seen)
    async with way.running(first, other):
        await way.publish(1, "orders")
        assert [row.payload for row in first.client.rows] == [b"1"]  # type: ignore[attr-defined]
        await way.publish(2, "orders", caller_connection=other)
        assert await seen.first() == [2]


async def test_session_of_the_application_may_be_a_handlers(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "bills")

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        async with way.open_session() as session:
            await broker.publish(body + 1, "bills", session=session)
            await session.rollback()
            await broker.publish(body + 2, "bills", session=session)
            await session.commit()

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.empty()
    assert 3 in seen
