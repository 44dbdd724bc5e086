"""Receiving without FastStream: effects and receipt are one commit, in every schedule of two deliveries."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import Inbox, events
from faststream_outbox.errors import (
    BeingHandled,
    InvalidMessage,
    InvalidMessageType,
    InvalidOption,
    InvalidOptionType,
    SessionRequired,
    TransactionEnded,
)
from faststream_outbox.inbox import Answer
from tests.cases import case
from tests.inbox.conftest import Scene
from tests.waiting import eventually

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


async def is_waited_for(engine: AsyncEngine) -> bool:
    """Somebody waits for the turn of another."""
    async with engine.connect() as connection:
        asked = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        return bool(await connection.scalar(text(asked)))


async def test_second_delivery_finds_the_receipt(scene: Scene, driver_engine: AsyncEngine) -> None:
    inbox = scene.inbox(engine=driver_engine)
    for expected in (True, False, False):
        async with inbox.receive("m1", source="orders") as receipt:
            assert receipt.is_new is expected
            if receipt.is_new:
                await scene.write(receipt.session, "m1")
            else:
                with pytest.raises(SessionRequired, match=r"receipt\.is_new"):
                    _ = receipt.session
    assert await scene.written() == ["m1"]
    assert await scene.receipts() == [("billing", "orders", "m1")]
    what = ("billing", "orders", "m1")
    assert scene.reported == [events.Received(*what), *[events.DuplicateSkipped(*what)] * 2]
    await inbox.stop()


async def test_consumers_and_sources_are_told_apart(scene: Scene) -> None:
    number = uuid4()
    for consumer, source in (("a", "x"), ("a", "y"), ("b", "x")):
        async with scene.inbox(consumer).receive(number, source=source) as receipt:
            assert receipt.is_new
    assert await scene.receipts() == [("a", "x", str(number)), ("a", "y", str(number)), ("b", "x", str(number))]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fails", [False, True])
async def test_second_delivery_waits_for_the_first_and_never_runs_beside_it(
    scene: Scene, database_url: Any, level: str, fails: bool
) -> None:
    strict = scene.engine.execution_options(isolation_level=level)
    first, second = scene.inbox(engine=strict), scene.inbox(engine=strict)
    running, go_on = asyncio.Event(), asyncio.Event()
    at_once: list[str] = []

    async def receive(inbox: Inbox, name: str) -> bool:
        async with inbox.receive("m1", source="orders") as receipt:
            if not receipt.is_new:
                return False
            at_once.append(name)
            await scene.write(receipt.session, name)
            running.set()
            if name == "first":
                await go_on.wait()
                if fails:
                    raise ValueError("no")
            return True

    one = asyncio.create_task(receive(first, "first"))
    await running.wait()
    two = asyncio.create_task(receive(second, "second"))
    await eventually(lambda: is_waited_for(scene.engine))
    assert at_once == ["first"]
    go_on.set()
    results = await asyncio.gather(one, two, return_exceptions=True)
    assert results[1] is fails
    assert await scene.written() == (["second"] if fails else ["first"])
    assert scene.count(events.DeliveryHeldUp) >= 1


async def test_second_delivery_comes_again_where_it_is_not_to_wait(scene: Scene) -> None:
    inbox = scene.inbox(on_concurrent="retry")
    async with inbox.receive("m1", source="orders"):
        with pytest.raises(BeingHandled, match="come again"):
            async with inbox.receive("m1", source="orders"):
                pass
        async with inbox.receive("m2", source="orders") as other:
            assert other.is_new
    async with inbox.receive("m1", source="orders") as receipt:
        assert not receipt.is_new
    assert events.DeliveryHeldUp("billing", "orders", "m1", None) in scene.reported


async def test_waiting_delivery_can_be_cancelled(scene: Scene) -> None:
    inbox = scene.inbox()

    async def receive() -> None:
        async with inbox.receive("m1", source="orders"):
            pass

    async with inbox.receive("m1", source="orders") as receipt:
        waiting = asyncio.create_task(receive())
        await eventually(lambda: is_waited_for(scene.engine))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await scene.write(receipt.session, "m1")
    assert await scene.written() == ["m1"]


async def test_many_deliveries_at_once_take_effect_once(scene: Scene) -> None:
    inboxes = [scene.inbox(on_concurrent=way) for way in ("wait", "retry")]

    async def deliver(inbox: Inbox, number: int) -> None:
        try:
            async with inbox.receive(number, source="orders") as receipt:
                if receipt.is_new:
                    await scene.write(receipt.session, str(number))
        except BeingHandled:
            pass

    await asyncio.gather(*(deliver(inbox, number) for number in range(10) for inbox in inboxes * 3))
    assert await scene.written() == sorted(map(str, range(10)))


async def test_transaction_belongs_to_the_inbox(scene: Scene, driver_engine: AsyncEngine) -> None:
    inbox = scene.inbox(engine=driver_engine)

    async def commit(session: AsyncSession) -> None:
        await scene.write(session, "m1")
        await session.commit()

    async def roll_back(session: AsyncSession) -> None:
        await session.rollback()
        await scene.write(session, "m1")

    async def roll_back_as_sql(session: AsyncSession) -> None:
        await session.execute(text("rollback"))

    async def swallow(session: AsyncSession) -> None:
        """PostgreSQL answers a COMMIT after a failed statement with a rollback, and no error."""
        await scene.write(session, "m1")
        with pytest.raises(Exception, match="nowhere"):
            await session.execute(text("select * from nowhere"))

    for handle, said in (
        (commit, "committed by the inbox"),
        (roll_back, "rolled the session"),
        (roll_back_as_sql, "rolled the session"),
        (swallow, "begin_nested"),
    ):
        with case(handle.__name__), pytest.raises(TransactionEnded, match=said):
            async with inbox.receive("m1", source="orders") as receipt:
                await handle(receipt.session)
        assert (await scene.written(), await scene.receipts()) == ([], []), handle.__name__
    await inbox.stop()


async def test_part_that_may_fail_has_a_savepoint(scene: Scene) -> None:
    inbox = scene.inbox()
    async with inbox.receive("m1", source="orders") as receipt:
        await scene.write(receipt.session, "kept")
        with pytest.raises(IntegrityError):
            async with receipt.session.begin_nested():
                await receipt.session.execute(
                    insert(scene.table).values(consumer="billing", source="orders", message_id="m1")
                )
        async with receipt.session.begin_nested():
            await scene.write(receipt.session, "kept too")
    assert await scene.written() == ["kept", "kept too"]


async def test_session_is_refused_once_it_has_ended(scene: Scene) -> None:
    async with scene.inbox().receive("m1", source="orders") as receipt:
        pass
    with pytest.raises(Exception, match="closed"):
        await scene.write(receipt.session, "late")
    assert await scene.written() == []


async def test_answer_is_kept_with_the_receipt(scene: Scene) -> None:
    inbox = scene.inbox()
    answer = Answer(b"\x00\xff", "application/x", {"a": "b", "n": 1})
    async with inbox.receive("m1", source="orders") as receipt:
        receipt.answer = answer
    async with inbox.receive("m1", source="orders") as receipt:
        assert (receipt.is_new, receipt.answer) == (False, answer)


async def test_bad_input_is_refused_before_sql(scene: Scene) -> None:
    inbox = scene.inbox()
    await scene.engine.dispose()
    for message_id, source, error in (
        ("", "orders", InvalidMessage),
        (None, "orders", InvalidMessageType),
        (b"m1", "orders", InvalidMessageType),
        ("a\x00b", "orders", InvalidMessage),
        ("\ud800", "orders", InvalidMessage),
        ("m" * 256, "orders", InvalidMessage),
        ("m1", "", InvalidMessage),
        ("m1", 7, InvalidMessageType),
        ("ü" * 255, "\U0001f980" * 600, InvalidMessage),
    ):
        with case((message_id, source)), pytest.raises(error):
            async with inbox.receive(message_id, source=source):  # type: ignore[arg-type]
                pass
    assert scene.reported == []


async def test_engine_that_commits_each_statement_is_refused(scene: Scene) -> None:
    assert await scene.receipts() == []
    engine = scene.engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(InvalidOption, match="AUTOCOMMIT"):
        async with scene.inbox(engine=engine).receive("m1", source="orders"):
            pass
    assert await scene.receipts() == []


def test_bad_options_are_refused(engine: AsyncEngine, sync_engine: Engine, scene: Scene) -> None:
    good: dict[str, Any] = {"engine": engine, "table": scene.table, "consumer": "billing"}
    for bad, error in (
        ({"engine": sync_engine}, InvalidOptionType),
        ({"table": scene.effects}, InvalidOption),
        ({"table": "inbox"}, InvalidOptionType),
        ({"consumer": ""}, InvalidOption),
        ({"consumer": None}, InvalidOptionType),
        ({"on_concurrent": "skip"}, InvalidOption),
        ({"keep": 7}, InvalidOptionType),
        ({"keep": timedelta(0)}, InvalidOption),
        ({"keep_response": "yes"}, InvalidOptionType),
        ({"message_id": "id"}, InvalidOptionType),
    ):
        options = {**good, **bad}
        with case(bad), pytest.raises(error):
            Inbox(options.pop("engine"), options.pop("table"), **options)
