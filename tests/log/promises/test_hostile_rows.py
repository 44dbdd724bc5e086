"""Whatever a row of the log holds, it fails alone: who may insert can write what no publisher would."""

import json
from typing import Any

from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import OutboxMessage
from tests.log.opened import drain
from tests.log.rig import LogRig


def is_readable(text: str) -> bool:
    """Whether Python takes this JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


MOMENTS = ["10001-01-01", "0044-03-15 BC", "infinity", "-infinity"]
DEEP = "[" * 2000 + "]" * 2000
ODD = [r'{"a": "\u0000"}', r'{"a": "\ud800"}', '{"a": 1, "a": 2}']
JSONS = ["null", "[1]", "5", '"text"', DEEP, "9" * 5000, "1e10000", *ODD]
OBJECTS = [*JSONS, f'{{"a": {DEEP}}}', f'{{"a": {"9" * 5000}}}', '{"event_id": {}}', '{"content_type": []}']

VALUES: dict[str, tuple[str, list[Any]]] = {
    "created_at": ("timestamptz", MOMENTS),
    "metadata": ("json", OBJECTS),
    "payload": ("json", JSONS),
    "uri": ("text", ["", "/", "a'b\"c%s:d\\", "ł漢", "x" * 1024, "\x01"]),
    "slot": ("smallint", [-32768, -1, 256, 32767]),
    "transaction_id": ("bigint", [-(2**63), 2**63 - 1]),
    "event_id": ("uuid", ["00000000-0000-0000-0000-000000000000"]),
}
NOBODYS = len(VALUES["slot"][1])
"""Rows of a slot that no group has are passed over."""
UNREADABLE = sum(not is_readable(text) for text in JSONS)
"""Payloads that PostgreSQL can read, and this Python cannot: how deep it goes depends on its version."""
COUNT = sum(len(values) for _, values in VALUES.values())


async def insert_hostile(rig: LogRig) -> None:
    """A row for each hostile value, and a good one after each."""
    place = 0
    for column, (kind, values) in VALUES.items():
        for value in values:
            place += 1
            uri = str(value) if column == "uri" else f"hostile/{place}"
            given = {
                "uri": "cast(:uri as text)",
                "slot": str(slot_of(uri)),
                "payload": "cast('\"hostile\"' as json)",
                "metadata": "cast('{}' as json)",
                "event_id": "cast(null as uuid)",
                "created_at": "now()",
                "transaction_id": "1",
            } | ({column: f"cast(cast(:value as text) as {kind})"} if column != "uri" else {})
            await rig.ask(
                f"insert into {{log}} (position, {', '.join(given)})"
                f" select nextval('{{sequence_name}}'), {', '.join(given.values())}",
                **{"uri": uri} | ({"value": str(value)} if column != "uri" else {}),
            )
            await rig.put("good", place)


class Subscriber:
    """Handles what is good, and refuses the rest if it is told to."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.good: list[int] = []
        self.hostile: list[OutboxMessage] = []

    async def __call__(self, message: OutboxMessage) -> None:
        if message.uri == "good":
            self.good.append(message.payload)
            return
        self.hostile.append(message)
        if self.refuses:
            raise ValueError("hostile")


async def test_a_hostile_row_fails_alone(driver_rig: LogRig) -> None:
    rig = driver_rig
    outbox = await rig.another(retry_strategy=NoRetry())
    await insert_hostile(rig)
    refusing = Subscriber(refuses=True)
    await drain(outbox, refusing, "g", batch_size=10)
    assert refusing.good == [*range(1, COUNT + 1)]
    assert len(refusing.hostile) == COUNT - NOBODYS - UNREADABLE
    assert len(await outbox.parked.list("g")) == COUNT - NOBODYS
    await outbox.parked.retry("g")
    batch_run = Subscriber(refuses=False)
    await drain(outbox, batch_run, "g", batch_size=10)
    assert (batch_run.good, len(batch_run.hostile)) == ([], COUNT - NOBODYS - UNREADABLE)
    assert len(await outbox.parked.list("g")) == UNREADABLE
    assert sum(span.messages for span in await outbox.lag("g")) == 0


async def test_a_loop_passes_a_message_that_cannot_be_read(rig: LogRig) -> None:
    await insert_hostile(rig)
    seen: list[OutboxMessage] = []
    messages = rig.outbox.messages("g")
    async for message in messages:
        seen.append(message)
        if message.payload == COUNT:
            break
    await messages.aclose()  # type: ignore[attr-defined]
    assert len(seen) == 2 * COUNT - NOBODYS - UNREADABLE
    assert len(await rig.outbox.parked.list("g")) == UNREADABLE


async def test_counters_at_their_end_stop_nobody(driver_rig: LogRig) -> None:
    rig = driver_rig
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    await rig.put("a", 1)
    refusing = Subscriber(refuses=True)
    await outbox.dispatch(refusing, "g")
    await rig.ask("update {offsets} set epoch = 9223372036854775807, crashes = 32767")
    await rig.ask("update {deferred} set attempts = 2147483647, due = '-infinity', first_attempt_at = '0044-03-15 BC'")
    await rig.put("good", 2)
    while len(refusing.hostile) < 2 or not refusing.good:
        await outbox.dispatch(refusing, "g")
    assert [message.attempts for message in await outbox.parked.list("g", state=None)] == [2**31 - 1]
    assert refusing.good == [2]
