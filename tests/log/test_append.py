"""Publishing to the log: through every kind of session, in its transaction, duplicates as the caller chooses."""

import asyncio
import json
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, UnsupportedSession
from faststream_outbox.log import DuplicateMessage, OutboxMessage, slot_of
from tests.cases import case
from tests.log.opened import Collector, delivered, drain
from tests.log.rig import LogRig
from tests.log.ways import LogWay
from tests.waiting import eventually


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
    assert (row["uri"], row["slot"], row["event_id"]) == ("k", slot_of("k"), event_id)
    assert (row["payload_text"], row["body"]) == ('{"n":1}', None)
    assert json.loads(row["metadata_text"]) == {"event_id": str(event_id)}
    assert row["created_at"].tzinfo is not None


async def test_taken_event_id_is_an_error_that_leaves_the_transaction_usable(way: LogWay, rig: LogRig) -> None:
    taken, fresh = str(UUID(int=1)), str(UUID(int=2))
    await rig.put("k", 1, event_id=taken)
    with pytest.raises(DuplicateMessage, match=taken):
        await way.publish(message(2, taken))
    with pytest.raises(DuplicateMessage, match=taken) as raised:
        await way.publish(message(2, taken), message(3, fresh))
    assert fresh not in str(raised.value)
    await way.execute("select 1")
    await way.rollback()


async def test_taken_event_id_can_be_left_out(way: LogWay, rig: LogRig) -> None:
    await rig.put("k", 1, event_id="same")
    assert (await way.publish(message(2, "same"), on_duplicate="ignore")).positions == ()
    token = await way.publish(message(2, "same"), message(3, "other"), message(4), on_duplicate="ignore")
    await way.commit()
    assert len(token.positions) == 2
    assert await delivered(rig.outbox, "g") == [1, 3, 4]


async def test_event_id_twice_in_one_call_is_a_duplicate(way: LogWay, rig: LogRig) -> None:
    token = await way.publish(message(1, "same"), message(2, "same"), on_duplicate="ignore")
    assert len(token.positions) == 1
    with pytest.raises(DuplicateMessage):
        await way.publish(message(3, "more"), message(4, "more"), message(5))
    await way.commit()
    assert await delivered(rig.outbox, "g") == [1]


async def test_nothing_to_publish_sends_nothing(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        assert (await rig.outbox.publish(session)).positions == ()


EVENT_IDS: list[object] = [
    UUID(int=7),
    str(UUID(int=8)),
    "6BA7B812-9DAD-11D1-80B4-00C04FD430C8",
    f"{{{UUID(int=9)}}}",
    17,
    "123",
    "order-1",
    "",
    "é漢😀",
    "x" * 10_000,
    "a\x00b",
]


async def test_event_id_of_any_shape_is_unique_and_comes_back_as_it_was(rig: LogRig) -> None:
    for event_id in EVENT_IDS:
        with case(event_id):
            await rig.put("k", 1, event_id=event_id)
            with pytest.raises(DuplicateMessage):
                await rig.put("k", 2, event_id=event_id)
    collector = Collector()
    await drain(rig.outbox, collector, "g")
    read = [message.metadata["event_id"] for message in collector.messages]
    assert read == [str(event_id) if isinstance(event_id, UUID) else event_id for event_id in EVENT_IDS]


async def test_messages_without_an_event_id_are_never_duplicates(rig: LogRig) -> None:
    async with rig.engine.begin() as connection:
        await rig.outbox.publish(connection, message(1), OutboxMessage("k", 1, {"event_id": None}))
        await rig.outbox.publish(connection, message(1))
    assert await delivered(rig.outbox, "g") == [1, 1, 1]


async def test_event_id_of_a_rolled_back_transaction_is_free(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.publish(session, message(1, "same"))
        await session.rollback()
    await rig.put("k", 2, event_id="same")
    assert await delivered(rig.outbox, "g") == [2]


def too_deep() -> list[object]:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


NO_JSON = [float("nan"), float("inf"), [float("inf")], {"a": float("-inf")}, "lone \ud800", ["\udfff"], {"\udfff": 1}]
"""Values of types that JSON has."""
NO_TYPE_OF_JSON = [object(), {1, 2}, 1j, {(1, 2): 3}, datetime(2026, 1, 1)]  # noqa: DTZ001

REFUSED: dict[type[Exception], list[object]] = {
    InvalidMessage: [
        *[OutboxMessage(uri, 1) for uri in ("", "a" * 1025, "é" * 513, "nul\x00", "lone \ud800")],
        *[OutboxMessage("k", payload) for payload in (*NO_JSON, too_deep())],
        *[OutboxMessage("k", 1, {"a": value}) for value in NO_JSON],
    ],
    InvalidMessageType: [
        OutboxMessage(7, 1),  # type: ignore[arg-type]
        *[OutboxMessage("k", payload) for payload in NO_TYPE_OF_JSON],
        *[OutboxMessage("k", 1, {"a": value}) for value in (*NO_TYPE_OF_JSON, b"bytes")],
        *[OutboxMessage("k", 1, metadata) for metadata in (None, "text", [("a", 1)], 7)],  # type: ignore[arg-type]
        *[OutboxMessage("k", 1, {"event_id": value}) for value in (1.5, ["x"], {"x": 1}, object(), b"0" * 16)],
        "a text",
        {"uri": "k", "payload": 1},
        None,
    ],
}


async def test_what_cannot_be_stored_is_refused_before_any_statement(rig: LogRig) -> None:
    sent: list[str] = []
    event.listen(rig.engine.sync_engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    for error, messages in REFUSED.items():
        for wrong in messages:
            async with AsyncSession(rig.engine) as session:
                with case(wrong), pytest.raises(error):
                    await rig.outbox.publish(session, message(0), wrong)  # type: ignore[arg-type]
    assert sent == []


async def test_transaction_in_which_something_was_refused_goes_on(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.publish(session, message("before"))
        with pytest.raises(InvalidMessage):
            await rig.outbox.publish(session, message("with it"), OutboxMessage("", 1))
        await rig.outbox.publish(session, message("after"))
    assert await delivered(rig.outbox, "g") == ["before", "after"]


async def test_call_that_is_too_large_is_refused(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.log.append.MAX_BODY_BYTES", 100)
    half = message(b"x" * 60)
    calls = [
        [half, message("x" * 60)],
        [OutboxMessage("k", 1, {"a": "x" * 100})],
        # Letters of two bytes.
        [message("ł" * 60)],
        [OutboxMessage("k", 1, {"a": "ł" * 60})],
    ]
    async with AsyncSession(rig.engine) as session, session.begin():
        for messages in calls:
            with case(messages), pytest.raises(InvalidMessage, match="bytes"):
                await rig.outbox.publish(session, *messages)
        assert (await rig.outbox.publish(session, half)).positions == (1,)


async def test_wrong_choice_for_duplicates_is_refused(rig: LogRig) -> None:
    async with AsyncSession(rig.engine) as session:
        with pytest.raises(InvalidOption):
            await rig.outbox.publish(session, message(1), on_duplicate="replace")  # type: ignore[arg-type]


async def test_what_is_no_session_is_refused(rig: LogRig) -> None:
    with pytest.raises(UnsupportedSession):
        await rig.outbox.publish(object(), message(1))


async def test_publishers_send_no_notification(rig: LogRig) -> None:
    """A NOTIFY in the transaction halves what publishers can do: the tick sends the one that there is."""
    async with rig.engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        heard: list[str] = []
        await raw.add_listener(rig.outbox.client.names.channel, lambda *sent: heard.append(sent[3]))
        for number in range(5):
            await rig.put("k", number)
        # A round trip later than any notification of what was committed before it.
        await raw.fetch("select 1")
        assert heard == []
        await rig.sequence()
        await eventually(lambda: heard)
        await raw.fetch("select 1")
        assert len(heard) == 1
        await raw.reset()


async def test_strict_order_makes_publishers_of_one_key_follow_each_other(rig: LogRig) -> None:
    strict = await rig.another(strict_key_order=True)
    first = await rig.writer()
    await strict.publish(first.connection, message(1))

    async def publish(uri: str) -> None:
        async with AsyncSession(rig.engine) as session, session.begin():
            await strict.publish(session, OutboxMessage(uri, 2))

    await publish("another key")
    second = asyncio.create_task(publish("k"))
    await eventually(lambda: rig.blocked_by(first.connection))
    await first.commit()
    await second
    assert await delivered(rig.outbox, "g", "k") == [1, 2]


async def test_strict_order_of_many_keys_does_not_deadlock(rig: LogRig) -> None:
    strict = await rig.another(strict_key_order=True)
    keys = [f"k{number}" for number in range(20)]

    async def publish(uris: list[str]) -> None:
        async with AsyncSession(rig.engine) as session, session.begin():
            await strict.publish(session, *[OutboxMessage(uri, 1) for uri in uris])

    await asyncio.gather(*(publish(keys if number % 2 else keys[::-1]) for number in range(10)))
    assert len(await rig.committed()) == 200
