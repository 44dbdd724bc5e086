"""What is heard on the log's channel, which any role may write to, is believed no further than one read."""

import pytest

from faststream_outbox import events
from faststream_outbox._internal.log.sharing.calls import EVERYBODY, Call, Calls, NewTick, call_in, changed, said
from faststream_outbox._internal.log.sharing.slots import Cursor, Group
from tests.cases import case, each
from tests.log.rig import LogRig
from tests.waiting import eventually

LARGEST = 2**63 - 1
STRANGE = [str(LARGEST), "9" * 5000, "-1", "", "\u0663", "changed?", "1e9"]


async def test_ticks_are_heard_of_after_a_stranger_has_named_a_larger_one(rig: LogRig) -> None:
    client = rig.outbox.client
    client.ticker.heard(LARGEST)
    before = client.tail.heard
    client.ticker.heard(1)
    assert client.tail.heard == before + 1


async def test_hint_costs_one_read(rig: LogRig) -> None:
    client = rig.outbox.client
    await rig.put_apart("k", 1)
    (tick,) = await client.timeline.after(client.connection, Cursor(0, 0))
    client.ticker.heard(LARGEST)
    assert client.timeline.may_follow(tick.last)
    assert list(await client.timeline.after(client.connection, tick.last)) == [tick]
    assert not client.timeline.may_follow(tick.last)


@each(
    ("payload", "meant"),
    [
        ("1", NewTick(1)),
        (str(LARGEST), NewTick(LARGEST)),
        ("9" * 20, EVERYBODY),
        ("-1", EVERYBODY),
        ("", EVERYBODY),
        ("1e9", EVERYBODY),
        ("changed", EVERYBODY),
        ("changed?", EVERYBODY),
        ('{"from": "x", "hints": []}', EVERYBODY),
        (changed(Group("g", "u")), Call(Group("g", "u").digest)),
        (changed(Group("g", "u"), "0" * 32), Call(Group("g", "u").digest, "0" * 32)),
    ],
)
def test_payload_is_a_tick_or_a_call(payload: str, meant: NewTick | Call) -> None:
    assert said(payload) == meant


async def test_listener_survives_what_a_stranger_says(rig: LogRig) -> None:
    outbox = await rig.another()
    reader = await rig.reader(outbox=outbox)
    await outbox.client.attach(reader.member)
    await eventually(lambda: rig.reported(events.ListenerReady), 10)
    for payload in STRANGE:
        with case(payload):
            await rig.ask("select pg_notify(:channel, :payload)", channel=outbox.client.names.channel, payload=payload)
            reader.member.wake.clear()
            reader.member.arranged()
            await rig.ask("select pg_notify(:channel, 'changed')", channel=outbox.client.names.channel)
            await eventually(lambda: reader.member.is_unsettled, 10)
    await outbox.client.detach(reader.member)
    assert rig.reported(events.LoopCrashed) == rig.reported(events.ListenerLost) == []


async def test_call_concerns_its_group_only(rig: LogRig) -> None:
    client = rig.outbox.client
    called, other = await rig.reader("called", "a/b"), await rig.reader("other", "a/b")
    for reader in (called, other):
        await client.attach(reader.member)
        reader.member.arranged()
    client.channel.hear(1, changed(called.member.group))
    assert (called.member.is_unsettled, other.member.is_unsettled) == (True, False)
    for reader in (called, other):
        await client.detach(reader.member)


async def test_own_call_is_not_heard_twice(rig: LogRig) -> None:
    passed: list[str | None] = []
    group = Group("g", "u")
    calls = Calls("0" * 32, {group.digest}, passed.append)
    calls.hear(call_in(changed(group, "0" * 32)))
    assert passed == []
    calls.hear(call_in(changed(group, "1" * 32)))
    assert passed == [group.digest]


async def test_stranger_who_shouts_is_heard_once_and_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call makes members look at their group: however many there are, they come in turns."""
    monkeypatch.setattr("faststream_outbox._internal.log.sharing.calls.ALL_SECONDS", 0.3)
    monkeypatch.setattr("faststream_outbox._internal.log.sharing.calls.GROUP_SECONDS", 0.3)
    passed: list[str | None] = []
    group = Group("g", "u")
    calls = Calls("0" * 32, {group.digest}, passed.append)
    for _ in range(20):
        for payload in (*STRANGE, "changed", "changed x", changed(group), changed(Group("unknown"))):
            calls.hear(call_in(payload))
    assert passed == [None, group.digest]
    await eventually(lambda: len(passed) == 4)
    assert set(passed[2:]) == {None, group.digest}
