"""The inbox without an event loop keeps the same promises, with the same receipts."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, Table, create_engine, event, func, insert, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from faststream_outbox import Inbox, SyncInbox, events
from faststream_outbox.errors import BeingHandled, InvalidOptionType, SessionRequired, TransactionEnded
from faststream_outbox.inbox import Answer

Tables = tuple[Table, Table]


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine_of_driver(request: pytest.FixtureRequest, database_url: URL) -> Iterator[Engine]:
    engine = create_engine(database_url.set(drivername=f"postgresql+{request.param}"))
    yield engine
    engine.dispose()


def received(inbox: SyncInbox, handle: Callable[[Session], None]) -> None:
    with inbox.receive("m1", source="orders") as receipt:
        handle(receipt.session)


def written(engine: Engine, effects: Table) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(select(effects.c.what)).scalars())


def test_second_delivery_finds_the_receipt(engine_of_driver: Engine, sync_scene: Tables) -> None:
    table, effects = sync_scene
    inbox = SyncInbox(engine_of_driver, table, consumer="billing")
    reported: list[Any] = []
    inbox.events.subscribe(reported.append)
    for expected in (True, False):
        with inbox.receive("m1", source="orders") as receipt:
            assert receipt.is_new is expected
            if receipt.is_new:
                receipt.session.execute(insert(effects).values(what="m1"))
                receipt.answer = Answer(b"done", "text/plain", {"a": "b"})
            else:
                assert receipt.answer == Answer(b"done", "text/plain", {"a": "b"})
                with pytest.raises(SessionRequired):
                    _ = receipt.session
    assert written(engine_of_driver, effects) == ["m1"]
    assert [type(event) for event in reported] == [events.Received, events.DuplicateSkipped]


async def test_both_forms_know_each_others_receipts(
    engine: AsyncEngine, sync_engine: Engine, sync_scene: Tables
) -> None:
    table, _ = sync_scene
    inbox = Inbox(engine, table, consumer="billing", on_concurrent="retry", keep=None)
    sync = SyncInbox(sync_engine, table, consumer="billing", on_concurrent="retry")
    async with inbox.receive("m1", source="orders"):
        with pytest.raises(BeingHandled), sync.receive("m1", source="orders"):
            pass
    with sync.receive("m1", source="orders") as receipt:
        assert not receipt.is_new


def test_transaction_belongs_to_the_inbox_and_a_failure_leaves_nothing(
    engine_of_driver: Engine, sync_scene: Tables
) -> None:
    table, effects = sync_scene
    inbox = SyncInbox(engine_of_driver, table, consumer="billing")

    def fail(session: Session) -> None:
        session.execute(insert(effects).values(what="m1"))
        raise ValueError("no such order")

    def roll_back(session: Session) -> None:
        session.rollback()
        session.execute(insert(effects).values(what="m1"))

    def swallow(session: Session) -> None:
        with pytest.raises(Exception, match="nowhere"):
            session.execute(text("select * from nowhere"))

    for handle, error, match in (
        (fail, ValueError, "no such order"),
        (Session.commit, TransactionEnded, "committed by"),
        (roll_back, TransactionEnded, "rolled"),
        (swallow, TransactionEnded, "failed"),
    ):
        with pytest.raises(error, match=match):
            received(inbox, handle)
        assert written(engine_of_driver, effects) == []


def test_threads_that_deliver_at_once_take_effect_once(sync_engine: Engine, sync_scene: Tables) -> None:
    table, effects = sync_scene
    inbox = SyncInbox(sync_engine, table, consumer="billing")

    def deliver() -> None:
        for number in range(20):
            with inbox.receive(number, source="orders") as receipt:
                if receipt.is_new:
                    receipt.session.execute(insert(effects).values(what=str(number)))

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written(sync_engine, effects) == sorted(map(str, range(20)))


def test_commit_whose_answer_was_lost_is_found_out_about(sync_engine: Engine, sync_scene: Tables) -> None:
    """The backend is gone when COMMIT is sent: it did not come about, and the error says so."""
    table, effects = sync_scene
    inbox = SyncInbox(sync_engine, table, consumer="billing")
    reported: list[Any] = []
    inbox.events.subscribe(reported.append, events.StatementFailed)

    def kill(connection: Any) -> None:
        with sync_engine.connect() as other:
            other.execute(text("select pg_terminate_backend(:pid, 5000)"), {"pid": connection.info["pid"]})

    def handle(session: Session) -> None:
        connection = session.connection()
        connection.info["pid"] = connection.scalar(text("select pg_backend_pid()"))
        session.execute(insert(effects).values(what="m1"))
        event.listen(sync_engine, "commit", kill)

    with pytest.raises(OperationalError):
        received(inbox, handle)
    event.remove(sync_engine, "commit", kill)
    assert reported
    assert written(sync_engine, effects) == []


def test_old_receipts_are_cleaned(sync_engine: Engine, sync_scene: Tables) -> None:
    table, _ = sync_scene
    inbox = SyncInbox(sync_engine, table, consumer="billing", keep=timedelta(days=1))
    for number in range(4):
        with inbox.receive(number, source="orders"):
            pass
    with sync_engine.begin() as connection:
        old = update(table).where(table.c.message_id < "2").values(received_at=func.now() - timedelta(days=2))
        connection.execute(old)
    inbox.clean()
    with sync_engine.connect() as connection:
        assert sorted(connection.execute(select(table.c.message_id)).scalars()) == ["2", "3"]


def test_async_engine_is_refused(engine: AsyncEngine, sync_scene: Tables) -> None:
    with pytest.raises(InvalidOptionType, match="Inbox"):
        SyncInbox(engine, sync_scene[0], consumer="billing")  # type: ignore[arg-type]
