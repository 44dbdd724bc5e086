"""Relays of queues and topics: removed after the confirm and not before, in order, uncounted while a broker is down."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxRouter
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.events import Died, RelayDown, Relayed, RelayUp
from faststream_outbox.relay import Relay, RelayMessage, Result, Sent, Unavailable
from tests.broker.topics.stage import Stage
from tests.relay.playing import Played, refuse
from tests.relay.publishing import is_empty, own_id, publish
from tests.waiting import eventually

SOON = ConstantRetry(delay_seconds=0.05)
KEYS = ["a", "b", "a", "b", "a", "c"]


@pytest.fixture
def played() -> Played:
    return Played()


class Source:
    """What a test relays: a queue or a topic, in the same words."""

    def __init__(self, stage: Stage, kind: str) -> None:
        self.stage = stage
        self.is_topic = kind == "topic"
        self.source: dict[str, Any] = {"topic": "orders", "group": "billing"} if self.is_topic else {"queues": "orders"}

    async def publish(self, *bodies: int, keys: Sequence[str | None] | None = None) -> None:
        if self.is_topic:
            await self.stage.publish(*bodies, keys=keys)
            return
        async with AsyncSession(self.stage.engine) as session, session.begin():
            await self.stage.broker.publish_batch(*bodies, queue="orders", keys=keys, session=session)

    async def relayed(
        self, played: Played, *bodies: int, keys: Sequence[str | None] | None = None, **options: Any
    ) -> Relay:
        """A relay of these, which runs."""
        relay = self.stage.broker.relay(**self.source, to=played, **options)
        await self.publish(*bodies, keys=keys)
        await self.stage.broker.start()
        return relay

    async def is_done(self) -> None:
        """Wait until nothing is left to relay."""
        await (self.stage.caught_up() if self.is_topic else is_empty(self.stage))

    async def counts(self) -> list[int]:
        """Attempts, and deliveries, of what waits."""
        if self.is_topic:
            return [each.attempts for each in await self.stage.deferred()]
        rows = await self.stage.sql(f"select attempts_count, deliveries_count from {self.stage.table.name}")
        return [number for row in rows for number in row.values()]

    async def dead(self) -> list[str]:
        """What is said of messages that failed for good."""
        if self.is_topic:
            return [str(each.error_message) for each in await self.stage.deferred() if each.state == "parked"]
        rows = await self.stage.sql(f"select last_exception from {self.stage.dlq_table.name} order by original_id")
        return [row["last_exception"] for row in rows]


@pytest.fixture(params=["queue", "topic"])
def source(stage: Stage, request: pytest.FixtureRequest) -> Source:
    return Source(stage, request.param)


async def test_messages_are_sent_in_order_per_key_and_removed(source: Source, played: Played) -> None:
    await source.relayed(played, *range(6), keys=KEYS)
    await source.is_done()
    assert sorted(played.bodies) == [*range(6)]
    for key in "abc":
        assert played.of_key(key) == [number for number in range(6) if KEYS[number] == key]
    assert all(len({message.key for message in batch}) == len(batch) for batch in played.tries)


async def test_nothing_is_removed_before_the_confirm(source: Source, played: Played) -> None:
    played.gate = asyncio.Event()
    relay = await source.relayed(played, 1)
    await eventually(lambda: played.tries)
    assert relay.in_flight == 1
    if not source.is_topic:
        assert await source.stage.in_queue("orders") == [b"1"]
    played.gate.set()
    await source.is_done()
    relayed = await source.stage.witness.wait(Relayed)
    assert (relayed.sent, relayed.refused, relayed.transport) == (1, 0, "played")
    assert relay.in_flight == 0


async def test_what_the_broker_refuses_is_dead_with_its_words_and_its_key_goes_on(
    source: Source, played: Played
) -> None:
    played.rule = refuse(1)
    await source.relayed(played, 0, 1, 2, 3, keys=["a", "b", "b", "c"])
    await eventually(lambda: sorted(played.bodies) == [0, 2, 3])
    await source.stage.witness.wait(Died)
    (said,) = await source.dead()
    assert "message too large" in said


async def test_with_block_the_key_of_a_refused_message_waits(source: Source, played: Played) -> None:
    played.rule = refuse(1)
    await source.relayed(played, 0, 1, 2, 3, keys=["a", "b", "b", "c"], on_dead="block")
    await source.stage.witness.wait(Died)
    await eventually(lambda: sorted(played.bodies) == [0, 3])
    await source.stage.broker.stop()
    assert 2 not in played.bodies


async def test_what_may_be_tried_again_is_counted_and_holds_its_key(source: Source, played: Played) -> None:
    played.rule = refuse(1, again=True)
    await source.relayed(played, 0, 1, 2, 3, keys=["a", "b", "b", "c"], retry_strategy=SOON)

    async def it_was_tried_twice() -> bool:
        return len([batch for batch in played.tries if 1 in [int(message.body) for message in batch]]) > 1

    await eventually(it_was_tried_twice)
    assert sorted(played.bodies) == [0, 3]
    played.rule = refuse()
    await source.is_done()
    assert played.of_key("b") == [1, 2]


async def test_an_outage_is_told_once_and_nothing_is_counted(source: Source, played: Played) -> None:
    played.is_down = True
    relay = await source.relayed(played, *range(6), keys=KEYS)
    await eventually(lambda: len(played.tries) > 3)
    assert relay.is_degraded
    played.is_down = False
    await source.is_done()
    witness = source.stage.witness
    assert [len(witness.of(RelayDown)), len(witness.of(RelayUp)), len(witness.of(Died))] == [1, 1, 0]
    assert not relay.is_degraded
    assert sorted(played.bodies) == [*range(6)]


async def test_a_stop_during_an_outage_gives_all_back_uncounted(source: Source, played: Played) -> None:
    played.is_down = True
    await source.relayed(played, *range(6), keys=KEYS)
    await eventually(lambda: len(played.tries) > 1)
    async with asyncio.timeout(10):
        await source.stage.broker.stop()
    assert set(await source.counts()) <= {0}
    played.is_down = False
    await source.stage.broker.start()
    await source.is_done()
    for key in "abc":
        assert played.of_key(key) == sorted(played.of_key(key))


async def test_what_was_taken_before_an_outage_is_settled_during_it(source: Source, played: Played) -> None:
    def goes_down_after(message: RelayMessage) -> Result:
        played.is_down = True
        return Sent()

    played.rule = goes_down_after
    await source.relayed(played, 0, 1, keys=["a", "a"])
    await source.stage.witness.wait(Relayed, sent=1)
    await source.stage.witness.wait(RelayDown)
    played.is_down, played.rule = False, refuse()
    await source.is_done()
    assert played.bodies == [0, 1]


async def test_what_a_broker_does_not_take_while_it_takes_others_is_put_off(source: Source, played: Played) -> None:
    is_down = True

    def rule(message: RelayMessage) -> Result:
        return Unavailable(ConnectionError("no leader")) if message.key == "b" and is_down else Sent()

    played.rule = rule
    await source.relayed(played, *range(6), keys=KEYS)
    await eventually(lambda: sorted(played.bodies) == [0, 2, 4, 5])
    await eventually(lambda: len(played.tries) > 3)
    is_down = False
    await source.is_done()
    assert played.of_key("b") == [1, 3]
    assert source.stage.witness.of(Died) == []


async def test_a_transport_that_raises_loses_nothing(source: Source, played: Played) -> None:
    def rule(message: RelayMessage) -> Result:
        raise RuntimeError("a mistake")

    played.rule = rule
    await source.relayed(played, 1, 2)
    down = await source.stage.witness.wait(RelayDown)
    assert str(down.error) == "a mistake"
    played.rule = refuse()
    await source.is_done()
    assert played.bodies == [1, 2]


async def test_without_order_all_go_together(source: Source, played: Played) -> None:
    await source.relayed(played, *range(6), keys=["a"] * 6, ordered=False)
    await source.is_done()
    assert [len(batch) for batch in played.tries] == [6]


async def test_messages_of_a_topic_without_a_key_have_an_order(stage: Stage, played: Played) -> None:
    stage.broker.relay(topic="orders", group="billing", to=played)
    await stage.publish(*range(4))
    await stage.broker.start()
    await stage.caught_up()
    assert played.bodies == [0, 1, 2, 3]
    assert {len(batch) for batch in played.tries} == {1}


async def test_messages_of_a_queue_without_a_key_go_together(stage: Stage, played: Played) -> None:
    stage.broker.relay("orders", to=played)
    await publish(stage, *range(4))
    await stage.broker.start()
    await eventually(lambda: len(played.taken) == 4)
    assert [len(batch) for batch in played.tries] == [4]


async def test_a_transport_is_started_again_until_it_works_and_stopped_once(stage: Stage, played: Played) -> None:
    played.fails_to_start = 2
    relay = stage.broker.relay("orders", to=played)
    await stage.broker.start()
    await publish(stage, 1)
    await eventually(lambda: played.taken)
    assert not relay.is_degraded
    await stage.broker.stop()
    assert (played.starts, played.stops) == (3, 1)
    assert [len(stage.witness.of(RelayDown)), len(stage.witness.of(RelayUp))] == [1, 1]


async def test_a_routers_relay_has_its_prefix(stage: Stage, played: Played) -> None:
    router = OutboxRouter(prefix="shop-")
    router.relay("orders", to=played)
    stage.broker.include_router(router)
    assert [relay.queues for relay in stage.broker.relays] == [("shop-orders",)]
    await stage.broker.start()
    await publish(stage, 1, queue="shop-orders")
    await eventually(lambda: played.taken)


async def test_a_message_says_all_that_it_is(stage: Stage, played: Played) -> None:
    stage.broker.relay("orders", to=played)
    headers = {"traceparent": "00-1-2-01", "tenant": 7, "reply_to": "answers"}
    await publish(stage, {"id": 1}, headers=headers, correlation_id="cor-1", key="k")
    message_id = await own_id(stage)
    await stage.broker.start()
    await eventually(lambda: played.taken)
    (message,) = played.taken
    assert (message.id, message.correlation_id, message.key) == (message_id, "cor-1", "k")
    assert (message.body, message.content_type, message.reply_to) == (b'{"id":1}', "application/json", "answers")
    assert message.headers == {"traceparent": "00-1-2-01", "tenant": 7}
    assert message.text_headers() == {"traceparent": "00-1-2-01", "tenant": "7"}


async def test_ids_of_a_topic_are_the_same_every_time_and_of_one_log_only(stage: Stage, played: Played) -> None:
    other = Played()
    stage.broker.relay(topic="orders", group="one", to=played)
    stage.broker.relay(topic="orders", group="two", to=other)
    await stage.publish(1, 1)
    await stage.broker.start()
    await eventually(lambda: len(played.taken) == len(other.taken) == 2)
    ids = [message.id for message in played.taken]
    assert ids == [message.id for message in other.taken]
    assert len(set(ids)) == 2
