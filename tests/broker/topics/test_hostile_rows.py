"""A row of a topic by another hand reaches its handler or is parked with the reason, and those behind it go on."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from faststream_outbox import NoRetry
from faststream_outbox._internal.events.types import (
    LoopCrashed,
    MessageSetApart,
    MessagesMissed,
    OutcomeRefused,
    StatementFailed,
)
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

NUL = r'{"a": "\u0000", "\u0000": 1}'
DEEP = "[" * 3_000 + "]" * 3_000
SAID_TO_BE_JSON = [
    b"",
    b"{",
    b"nope",
    b"\xff",
    "ł".encode("iso8859-2"),
    b"\x1f\x8b\x08\x00bomb",
    b"9" * 5000,
    b"[" * 90000,
]
SAID_TO_BE_TEXT = [
    "Grüße".encode("latin-1"),
    "こんにちは".encode("shift_jis"),
    "你好".encode("gb18030"),
    b"\xed\xa0\x80",
]
WRITTEN_ELSEWHERE = ['{"a": "ł"}'.encode("utf-16"), '{"a": "ł"}'.encode("utf-32"), b'\xef\xbb\xbf{"a": 1}']
CONTENT_TYPES = [
    "application/x-never-heard-of", "application/json; charset=utf-9", "text/plain; charset=klingon", "", "json",
    "a'; drop table outbox_log; --", "\x7f\u202e", "x" * 100_000,
]  # fmt: skip
HEADERS = ["null", "[1]", "5", '"text"', NUL, r'{"a": "\ud800"}', '{"a": 1e400}', f'{{"a": {"9" * 5000}}}', DEEP]
ODD_TYPES = ["null", "[]", "{}", "5", "true", r'"\u0000"', r'"\ud800"']
PAYLOADS = ["null", '""', "[]", NUL, r'"\ud800"', "1e400", "9" * 5000, DEEP]
MOMENTS = ["10001-01-01", "0044-03-15 BC", "infinity", "-infinity"]


class Strange(NamedTuple):
    """What other hands wrote: a body or a payload, metadata, a time."""

    payload: str | None = None
    body: bytes | None = None
    metadata: str = "{}"
    created_at: str = "now"


def strangers() -> Iterator[Strange]:
    for body in SAID_TO_BE_JSON:
        yield Strange(body=body, metadata='{"content-type": "application/json"}')
    for body in SAID_TO_BE_TEXT:
        yield Strange(body=body, metadata='{"content-type": "text/plain"}')
    for body in (*SAID_TO_BE_JSON, *SAID_TO_BE_TEXT, *WRITTEN_ELSEWHERE):
        yield Strange(body=body)
        yield Strange(body=body, metadata='{"content-encoding": "gzip", "content-type": "application/octet-stream"}')
    for given in CONTENT_TYPES:
        quoted = given.replace("'", "\\u0027").replace("\x7f", "\\u007f")
        yield Strange(body=b'{"a": 1}', metadata=f'{{"content-type": "{quoted}"}}')
    for given in ODD_TYPES:
        for name in ("content-type", "correlation_id", "reply_to", "event_id"):
            yield Strange(body=b'{"a": 1}', metadata=f'{{"{name}": {given}}}')
    for metadata in HEADERS:
        yield Strange(payload="1", metadata=metadata)
    for payload in PAYLOADS:
        yield Strange(payload=payload)
    for moment in MOMENTS:
        yield Strange(payload="1", created_at=moment)


ALL = [*strangers()]
INSERT = """
insert into outbox_log (position, uri, slot, payload, body, metadata, created_at, transaction_id)
values (nextval('outbox_log_head_drawn_seq'), cast(:uri as text), :slot, cast(cast(:payload as text) as json),
        :body, cast(cast(:metadata as text) as json), cast(cast(:created_at as text) as timestamptz), 1)
"""


async def write(connection: AsyncConnection, row: Strange, uri: str) -> None:
    await connection.execute(text(INSERT), {**row._asdict(), "uri": uri, "slot": slot_of(uri)})


async def write_all(stage: Stage) -> None:
    """Every strange row, and a good one behind each, of the same key."""
    async with stage.engine.begin() as connection:
        for number, row in enumerate(ALL):
            await write(connection, row, f"orders/{number}")
            await stage.broker.publish(f"good {number}", topic="orders", key=str(number), session=connection)


async def write_one(stage: Stage, body: bytes, content_type: str) -> None:
    async with stage.engine.begin() as connection:
        await write(connection, Strange(body=body, metadata=f'{{"content-type": "{content_type}"}}'), "orders/1")


GOOD = {f"good {number}" for number in range(len(ALL))}
NO_ADDRESS = "faststream_outbox.errors.InvalidMessage"
"""Where to answer to is no name: the handler has run, and its answer can go nowhere."""
REASONS = {NO_ADDRESS, "json.decoder.JSONDecodeError", "UnicodeDecodeError", "ValueError", "RecursionError"}
BROKEN = (StatementFailed, LoopCrashed, MessageSetApart, MessagesMissed, OutcomeRefused)


def subscribe(stage: Stage, **options: Any) -> None:
    """A handler that notes the good ones, and the keys of the strange ones."""

    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry(), **options)
    async def handle(body: Any, message: OutboxMessage) -> None:
        assert isinstance(message.headers, dict)
        assert message.raw_message.created_at.tzinfo
        stage.seen.append(body if isinstance(body, str) and body in GOOD else message.raw_message.key)


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [False, True], ids=["alone", "transactional"])
async def test_each_is_handled_or_parked_and_those_behind_are_handled(stage: Stage, transactional: bool) -> None:
    subscribe(stage, transactional=transactional)
    await write_all(stage)
    await stage.broker.start()
    await eventually(lambda: {*stage.seen} >= GOOD, message="those behind are handled")
    parked = {int(each.message.uri.partition("/")[2]): each for each in await stage.deferred() if each.message}
    handled = {int(key) for key in {*stage.seen} - GOOD}
    assert handled | parked.keys() == {*range(len(ALL))}
    assert {parked[number].error_type for number in handled & parked.keys()} == {NO_ADDRESS}
    assert len(stage.seen) == len({*stage.seen})
    # Nobody can read these, and they say why; the rest is odd, and can be read.
    assert {*range(len(SAID_TO_BE_JSON) + len(SAID_TO_BE_TEXT))} <= parked.keys()
    assert all(each.state == "parked" and each.error_type and each.error_message for each in parked.values())
    assert {each.error_type for each in parked.values()} <= REASONS
    assert stage.witness.of(*BROKEN) == []


@pytest.mark.slow
async def test_batch_loses_none_of_those_that_came_with_them(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry(), batch=True)
    async def handle(bodies: list[Any], message: OutboxBatchMessage) -> None:
        stage.seen += [each.raw_message.id for each in message.messages]

    await write_all(stage)
    await stage.broker.start()
    positions = {row["position"] for row in await stage.sql("select position from outbox_log")}

    async def all_are_known() -> bool:
        return {*stage.seen} | {each.position for each in await stage.deferred()} == positions

    await eventually(all_are_known)
    assert all(each.error_type for each in await stage.deferred() if each.state == "parked")
    assert stage.witness.of(*BROKEN) == []


async def test_what_could_not_be_read_is_in_no_line_of_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    subscribe(stage)
    await write_one(stage, b"secret \xff", "text/plain")
    await stage.broker.start()
    (parked,) = await stage.has_deferred("parked")
    assert parked.error_type == "UnicodeDecodeError"
    assert "UnicodeDecodeError" in caplog.text
    assert "secret" not in caplog.text


async def test_operator_sees_it_and_tries_it_again(stage: Stage) -> None:
    subscribe(stage)
    await write_one(stage, b"{", "application/json")
    await stage.broker.start()
    (parked,) = await stage.has_deferred("parked")
    assert parked.message.payload == b"{"
    await stage.sql("update outbox_log set body = '{}'")
    await stage.outbox.parked.retry("billing", "orders")
    assert await stage.saw(1) == ["1"]
