"""Publishing to the log: through every kind of session, in its transaction, duplicates as the caller chooses."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import URL, event, text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, UnsupportedSession
from faststream_outbox.log import DuplicateMessage, OutboxMessage
from tests.cases import case
from tests.log.opened import delivered
from tests.log.rig import LogRig
from tests.log.ways import KINDS, WAYS, LogWay
from tests.waiting import eventually


@pytest.fixture(params=WAYS)
async def any_way(request: pytest.FixtureRequest, database_url: URL, rig: LogRig) -> AsyncIterator[LogWay]:
    """Each way to publish in turn, begun."""
    async with LogWay.opened(request.param, database_url, rig.outbox) as way:
        await way.begin()
        yield way


@pytest.fixture(params=KINDS)
async def way(request: pytest.FixtureRequest, database_url: URL, rig: LogRig) -> AsyncIterator[LogWay]:
    """A way to publish of each kind in turn, begun."""
    async with LogWay.opened(request.param, database_url, rig.outbox) as way:
        await way.begin()
        yield way


def message(payload: object, event_id: object = None) -> OutboxMessage:
    return OutboxMessage("k", payload, {} if event_id is None else {"event_id": event_id})


async def test_commit_publishes_in_the_order_given(any_way: LogWay, rig: LogRig) -> None:
    payloads = [{"a": [1, 2.5, None, "ü"]}, b"\x00\xff", None, "text", b"", [True], 0]
    token = await any_way.publish(*[message(payload) for payload in payloads])
    assert await rig.committed() == []
    await any_way.commit()
    assert list(token.positions) == await rig.committed() == list(range(1, 8))
    assert await delivered(rig.outbox, "g") == payloads


async def test_rollback_publishes_nothing(way: LogWay, rig: LogRig) -> None:
    await way.publish(message(1), message(2))
    await way.rollback()
    assert await rig.committed() == []


async def test_one_message_says_everything_that_it_was_given(way: LogWay, rig: LogRig) -> None:
    event_id = uuid4()
    await way.publish(message({"n": 1}, str(event_id)))
    await way.commit()
    (row,) = await rig.ask("select *, payload::text as payload_text, metadata::text as metadata_text from {log}")
    assert (row["uri"], row["payload_text"], row["body"], row["event_id"]) == ("k", '{"n":1}', None, event_id)
    assert json.loads(row["metadata_text"]) == {"event_id": str(event_id)}
    assert row["created_at"].tzinfo is not None


async def test_taken_event_id_is_an_error_that_leaves_the_transaction_usable(way: LogWay, rig: LogRig) -> None:
    await rig.put("k", 1, event_id="same")
    with pytest.raises(DuplicateMessage):
        await way.publish(message(2, "same"))
    with pytest.raises(DuplicateMessage):
        await way.publish(message(2, "same"), message(3))
    await way.execute("select 1")
    await way.rollback()


async def test_error_names_the_event_id_that_is_taken_and_no_other(way: LogWay, rig: LogRig) -> None:
    taken, fresh = UUID(int=1), UUID(int=2)
    await rig.put("k", 1, event_id=str(taken))
    with pytest.raises(DuplicateMessage, match=str(taken)) as raised:
        await way.publish(message(2, str(taken)), message(3, str(fresh)))
    assert str(fresh) not in str(raised.value)
    await way.rollback()


async def test_taken_event_id_can_be_left_out(way: LogWay, rig: LogRig) -> None:
    await rig.put("k", 1, event_id="same")
    token = await way.publish(message(2, "same"), message(3, "other"), message(4), on_duplicate="ignore")
    await way.commit()
    assert len(token.positions) == 2
    assert await delivered(rig.outbox, "g") == [1, 3, 4]


async def test_event_id_twice_in_one_call(way: LogWay, rig: LogRig) -> None:
    token = await way.publish(message(1, "same"), message(2, "same"), on_duplicate="ignore")
    assert len(token.positions) == 1
    with pytest.raises(DuplicateMessage):
        await way.publish(message(3, "more"), message(4, "more"))
    await way.rollback()


async def test_nothing_to_publish_sends_nothing(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        assert (await rig.outbox.publish(session)).positions == ()


async def test_event_id_of_any_shape_is_unique(rig: LogRig) -> None:
    for event_id in (UUID(int=7), "6BA7B812-9DAD-11D1-80B4-00C04FD430C8", 17, "order-1", ""):
        with case(event_id):
            await rig.put("k", 1, event_id=event_id)
            with pytest.raises(DuplicateMessage):
                await rig.put("k", 2, event_id=event_id)


async def test_event_id_of_a_rolled_back_transaction_is_free(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.publish(session, message(1, "same"))
        await session.rollback()
    await rig.put("k", 2, event_id="same")
    assert await delivered(rig.outbox, "g") == [2]


async def test_second_of_two_at_once_with_one_event_id_is_the_duplicate(rig: LogRig) -> None:
    first = await rig.writer()
    await rig.outbox.publish(first.connection, message(1, "same"))
    second = asyncio.create_task(rig.put("k", 2, event_id="same"))

    async def waits() -> bool:
        return await rig.blocked_by(first.connection)

    await eventually(waits)
    await first.commit()
    with pytest.raises(DuplicateMessage):
        await second


WRONG: list[object] = [
    OutboxMessage("", 1),
    OutboxMessage("a" * 1025, 1),
    OutboxMessage("ü" * 600, 1),
    OutboxMessage("nul\x00", 1),
    OutboxMessage("lone \ud800", 1),
    OutboxMessage(7, 1),  # type: ignore[arg-type]
    OutboxMessage("k", float("nan")),
    OutboxMessage("k", [float("inf")]),
    OutboxMessage("k", "lone \udfff"),
    OutboxMessage("k", {"lone \udfff": 1}),
    OutboxMessage("k", object()),
    OutboxMessage("k", {(1, 2): 3}),
    OutboxMessage("k", {1, 2}),
    OutboxMessage("k", 1, metadata=[("a", 1)]),  # type: ignore[arg-type]
    OutboxMessage("k", 1, metadata={"a": object()}),
    OutboxMessage("k", 1, metadata={"a": float("nan")}),
    OutboxMessage("k", 1, metadata={"a": "\ud800"}),
    OutboxMessage("k", 1, metadata={"event_id": 1.5}),
    OutboxMessage("k", 1, metadata={"event_id": ["x"]}),
    OutboxMessage("k", 1, metadata={"event_id": b"0123456789abcdef"}),
    "a text",
    {"uri": "k", "payload": 1},
    None,
]


async def test_what_cannot_be_stored_is_refused_before_any_statement(rig: LogRig) -> None:
    sent: list[str] = []
    event.listen(rig.engine.sync_engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    for wrong in WRONG:
        async with AsyncSession(rig.engine) as session:
            with case(wrong), pytest.raises((InvalidMessage, InvalidMessageType)):
                await rig.outbox.publish(session, OutboxMessage("k", 0), wrong)  # type: ignore[arg-type]
    assert sent == []


async def test_call_that_is_too_large_is_refused(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.log.append.MAX_BODY_BYTES", 100)
    half = OutboxMessage("k", b"x" * 60)
    async with AsyncSession(rig.engine) as session, session.begin():
        with pytest.raises(InvalidMessage, match="bytes"):
            await rig.outbox.publish(session, half, OutboxMessage("k", "x" * 60))
        with pytest.raises(InvalidMessage, match="bytes"):
            await rig.outbox.publish(session, OutboxMessage("k", 1, {"a": "x" * 100}))
        # Letters of two bytes.
        with pytest.raises(InvalidMessage, match="bytes"):
            await rig.outbox.publish(session, OutboxMessage("k", "ł" * 60))
        with pytest.raises(InvalidMessage, match="bytes"):
            await rig.outbox.publish(session, OutboxMessage("k", 1, {"a": "ł" * 60}))
        assert (await rig.outbox.publish(session, half)).positions == (1,)


async def test_too_deep_for_json_is_refused(rig: LogRig) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    async with AsyncSession(rig.engine) as session:
        with pytest.raises(InvalidMessage):
            await rig.outbox.publish(session, OutboxMessage("k", deep))


async def test_wrong_choice_for_duplicates_is_refused(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        with pytest.raises(InvalidOption):
            await rig.outbox.publish(session, message(1), on_duplicate="replace")  # type: ignore[arg-type]


async def test_what_is_no_session_is_refused(rig: LogRig) -> None:
    with pytest.raises(UnsupportedSession):
        await rig.outbox.publish(object(), message(1))


async def test_number_is_drawn_after_the_transaction_has_its_xid(rig: LogRig) -> None:
    """The sequencer's argument: the owner of a missed number has a smaller xid than any that begins later."""
    plan = await rig.ask("select 1")
    assert plan
    async with rig.engine.connect() as connection:
        await rig.outbox.publish(connection, message(1))
        mine = (await connection.execute(text("select pg_current_xact_id_if_assigned()::text"))).scalar_one()
        await connection.commit()
    assert [str(row["transaction_id"]) for row in await rig.ask("select transaction_id from {log}")] == [mine]


async def test_strict_order_makes_publishers_of_one_key_follow_each_other(rig: LogRig) -> None:
    strict = await rig.another(strict_key_order=True)
    first = await rig.writer()
    await strict.publish(first.connection, message(1))

    async def publish(uri: str) -> None:
        async with AsyncSession(rig.engine) as session, session.begin():
            await strict.publish(session, OutboxMessage(uri, 2))

    await publish("another key")
    second = asyncio.create_task(publish("k"))

    async def waits() -> bool:
        return await rig.blocked_by(first.connection)

    await eventually(waits)
    await first.commit()
    await second


async def test_strict_order_of_many_keys_does_not_deadlock(rig: LogRig) -> None:
    strict = await rig.another(strict_key_order=True)
    keys = [f"k{number}" for number in range(20)]

    async def publish(uris: list[str]) -> None:
        async with AsyncSession(rig.engine) as session, session.begin():
            await strict.publish(session, *[OutboxMessage(uri, 1) for uri in uris])

    await asyncio.gather(*(publish(keys if number % 2 else keys[::-1]) for number in range(10)))
    assert len(await rig.committed()) == 200
