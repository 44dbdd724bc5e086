"""What is heard on the log's channel, which any role may write to, is believed no further than one look."""

import asyncio

import pytest

from faststream_outbox.events import table as told
from faststream_outbox.log.spans import Cursor
from tests.log.rig import LogRig
from tests.waiting import eventually

LARGEST = 2**63 - 1
STRANGE = [str(LARGEST), "9" * 5000, "-1", "", "\u0663", "changed?", "1e9"]


async def test_ticks_are_heard_of_after_a_stranger_has_named_a_larger_one(rig: LogRig) -> None:
    client = rig.outbox.client
    reader = await rig.reader()
    await client.attach(reader)
    client.ticker.heard(LARGEST)
    reader.wake.clear()
    client.ticker.heard(1)
    is_woken = reader.wake.is_set()
    await client.detach(reader)
    assert is_woken


async def test_hint_costs_one_look(rig: LogRig) -> None:
    client = rig.outbox.client
    await rig.put("k", 1)
    await rig.sequence()
    (tick,) = await client.timeline.after(client.wire, Cursor(0, 0))
    client.ticker.heard(LARGEST)
    assert client.timeline.may_follow(tick.last)
    assert list(await client.timeline.after(client.wire, tick.last)) == [tick]
    assert not client.timeline.may_follow(tick.last)


@pytest.mark.parametrize("payload", STRANGE, ids=lambda payload: payload[:8] or "nothing")
async def test_listener_survives_what_a_stranger_says(rig: LogRig, payload: str) -> None:
    outbox = await rig.another()
    reader = await rig.reader(outbox=outbox)
    await outbox.client.attach(reader)
    await eventually(lambda: rig.told(told.ListenerReady), 10)
    channel = outbox.client.names.channel
    await rig.ask("select pg_notify(:channel, :payload)", channel=channel, payload=payload)
    reader.wake.clear()
    reader.is_unsettled = False
    await rig.ask("select pg_notify(:channel, 'changed')", channel=channel)
    await eventually(lambda: reader.is_unsettled, 10)
    await outbox.client.detach(reader)
    assert rig.told(told.LoopCrashed) == rig.told(told.ListenerLost) == []
    await asyncio.sleep(0)
