"""How relays are: which broker answers, and how old what waits for it is."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import TestOutboxBroker
from faststream_outbox.relay import RelayStatus
from tests.broker.topics.stage import Stage
from tests.relay.playing import Played, refuse
from tests.waiting import eventually

QUEUE: dict[str, Any] = {"queues": "orders"}
TOPIC: dict[str, Any] = {"topic": "orders", "group": "billing"}


async def publish(stage: Stage, source: dict[str, Any], *bodies: int, **options: Any) -> None:
    name = source.get("topic") or source["queues"]
    where = {"topic": name} if "topic" in source else {"queue": name}
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.broker.publish_batch(*bodies, **where, session=session, **options)


async def waiting(stage: Stage, *bodies: int) -> None:
    """A relay of a queue that does not run, and what waits for it."""
    stage.broker.relay("orders", to=Played())
    await publish(stage, QUEUE, *bodies)


async def oldest(stage: Stage) -> float | None:
    return (await status(stage))[0].oldest_seconds


async def status(stage: Stage) -> list[RelayStatus]:
    return await stage.broker.relay_status()


async def grows(stage: Stage, place: int) -> bool:
    """Whether the age of what waits grows from one question to the next."""
    before = (await status(stage))[place].oldest_seconds or 0.0

    async def is_older() -> bool:
        return ((await status(stage))[place].oldest_seconds or 0.0) > before > 0.0

    return bool(await eventually(is_older))


@pytest.mark.parametrize("source", [QUEUE, TOPIC], ids=["queue", "topic"])
async def test_age_grows_where_the_broker_is_down_and_nowhere_else(stage: Stage, source: dict[str, Any]) -> None:
    up, down = Played(), Played()
    down.name, down.is_down = "dead", True
    other = {"queues": "mails"} if source is QUEUE else {"topic": "mails", "group": "billing"}
    stage.broker.relay(**source, to=down, name="to dead")
    stage.broker.relay(**other, to=up, name="to played")
    await publish(stage, source, 1, 2)
    await publish(stage, other, 3)
    await stage.broker.start()
    await eventually(lambda: up.bodies == [3] and len(down.tries) > 1)

    async def the_other_has_nothing_left() -> bool:
        return (await status(stage))[1].oldest_seconds == 0.0

    await eventually(the_other_has_nothing_left)
    assert await grows(stage, 0)
    first, second = await status(stage)
    assert (first.name, first.sources, first.group) == ("to dead", ("orders",), source.get("group"))
    assert (first.destination, first.circuit, first.error) == ("dead", "open", "ConnectionError: nobody there")
    assert (second.destination, second.circuit, second.error, second.in_flight) == ("played", "closed", None, 0)
    assert second.oldest_seconds == 0.0
    down.is_down = False

    async def everything_was_relayed() -> bool:
        found = await status(stage)
        return [(each.circuit, each.oldest_seconds) for each in found] == [("closed", 0.0)] * 2

    await eventually(everything_was_relayed)
    assert down.bodies == [1, 2]


async def test_what_is_being_sent_is_in_flight_and_ages(stage: Stage) -> None:
    played = Played()
    played.gate = asyncio.Event()
    stage.broker.relay("orders", to=played)
    await publish(stage, QUEUE, 1)
    await stage.broker.start()
    await eventually(lambda: played.tries)
    assert (await status(stage))[0].in_flight == 1
    assert await grows(stage, 0)
    played.gate.set()


@pytest.mark.parametrize("source", [QUEUE, TOPIC], ids=["queue", "topic"])
async def test_age_grows_also_where_the_broker_was_never_reached(stage: Stage, source: dict[str, Any]) -> None:
    """The group of a topic has no place in the log then."""
    played = Played()
    played.fails_to_start = 1_000_000
    stage.broker.relay(**source, to=played)
    await publish(stage, source, 1)
    await stage.broker.start()
    await eventually(lambda: played.starts > 1)
    assert (await status(stage))[0].circuit == "open"
    assert await grows(stage, 0)


async def test_group_that_begins_with_what_comes_has_nothing_to_tell_before(stage: Stage) -> None:
    stage.broker.relay(**TOPIC, to=Played(), start="latest")
    await publish(stage, TOPIC, 1)
    assert [(each.circuit, each.oldest_seconds) for each in await status(stage)] == [("stopped", None)]


async def test_relay_that_does_not_run_is_told_with_the_age_of_what_waits(stage: Stage) -> None:
    await waiting(stage, 1)
    assert (await status(stage))[0].circuit == "stopped"
    assert await grows(stage, 0)


async def test_message_that_is_tried_again_is_as_old_as_its_first_attempt(stage: Stage) -> None:
    """Another one that is due comes before it."""
    await waiting(stage, 1)
    await stage.sql(
        f"update {stage.table.name} set first_attempt_at = now() - interval '1 hour', attempts_count = 1,"
        " next_attempt_at = now() + interval '1 hour'"
    )
    await publish(stage, QUEUE, 2)
    assert (await oldest(stage) or 0.0) >= 3600


async def test_what_is_not_due_or_out_of_reach_is_no_delay(stage: Stage) -> None:
    await waiting(stage, 1, 2)
    change = f"update {stage.table.name} set next_attempt_at ="
    later, apart = (row["id"] for row in await stage.sql(f"select id from {stage.table.name} order by id"))
    await stage.sql(f"{change} now() + interval '1 hour' where id = {later}")
    await stage.sql(f"{change} 'infinity', first_attempt_at = now() where id = {apart}")
    assert await oldest(stage) == 0.0


async def test_keys_and_priorities_count_alike(stage: Stage) -> None:
    await waiting(stage, 1)
    await publish(stage, QUEUE, 2, keys=["k"], priority=7)
    await stage.sql(f"update {stage.table.name} set next_attempt_at = now() - interval '1 hour' where key is not null")
    assert (await oldest(stage) or 0.0) >= 3600


async def test_deferred_message_of_a_topic_is_not_relayed_yet(stage: Stage) -> None:
    """The group is past it."""
    played = Played()
    played.rule = refuse(1, again=True)
    stage.broker.relay(**TOPIC, to=played)
    await publish(stage, TOPIC, 1, 2, keys=["a", "b"])
    await stage.broker.start()
    await stage.has_deferred("retry")
    await eventually(lambda: played.bodies == [2])
    assert await grows(stage, 0)


async def test_each_broker_of_a_mapping_is_told(stage: Stage) -> None:
    stage.broker.relay(group="out", to={"one": Played(), "two": Played()})
    found = await status(stage)
    assert [(each.sources, each.group, each.oldest_seconds) for each in found] == [
        (("one://",), "out", 0.0),
        (("two://",), "out", 0.0),
    ]


async def test_test_broker_knows_no_ages(stage: Stage) -> None:
    stage.broker.relay("orders", to=Played())
    async with TestOutboxBroker(stage.broker):
        assert [(each.circuit, each.oldest_seconds) for each in await status(stage)] == [("stopped", None)]
