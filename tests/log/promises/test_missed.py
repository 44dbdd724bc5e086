"""A group that expired and comes back to messages that are gone: they are given up, told, and nothing spins."""

from datetime import timedelta

import pytest

from faststream_outbox._internal.events.types import MessagesMissed
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from tests.log.asked import recorded
from tests.log.opened import Collector, delivered, reading, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually


async def expire(rig: LogRig, *, gone: str) -> None:
    """A group that has left a message to be retried and others behind it, and is away until some are deleted."""
    away = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
    await rig.put("k", 1, 2, 3)
    await away.dispatch(refuse, "g")
    assert [row["state"] for row in await rig.deferrals()] == ["retry", "deferred", "deferred"]
    await rig.ask("update {offsets} set updated_at = now() - interval '40 days'")
    await rig.ask(f"delete from {{log}} where position in ({gone})")


@pytest.mark.slow
async def test_what_waited_and_is_deleted_is_given_up_and_told(rig: LogRig) -> None:
    await expire(rig, gone="1, 2, 3")
    await rig.put("k", 4)
    collector = Collector()
    with recorded(rig.outbox) as asked:
        async with reading(rig.outbox, collector, "g"):
            await eventually(lambda: collector.payloads == [4])
    assert await rig.deferrals() == []
    assert rig.reported(MessagesMissed) == [MessagesMissed("g", "", (1, 2, 3))]
    assert [each.statement.name for each in asked].count("fetch_deferred") < 5


@pytest.mark.slow
async def test_what_is_left_behind_it_is_handled_in_order(rig: LogRig) -> None:
    await expire(rig, gone="1, 3")
    await rig.put("k", 4)
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
    assert await delivered(outbox, "g") == [2, 4]
    assert await rig.deferrals() == []
    assert rig.reported(MessagesMissed) == [MessagesMissed("g", "", (1, 3))]


@pytest.mark.slow
async def test_retention_itself_leaves_such_rows_behind(rig: LogRig) -> None:
    """The message of an expired group goes; its entry stays until the group is back, and is ended then."""
    away = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
    await rig.put("k", 1)
    await away.dispatch(refuse, "g")
    await rig.ask("update {offsets} set updated_at = now() - interval '40 days'")
    await rig.put("other", 2)
    await delivered(rig.outbox, "alive")
    await rig.outbox.clean(older_than=timedelta(0))
    assert len(await rig.deferrals()) == 1
    assert await delivered(away, "g") in ([2], [])
    await eventually(lambda: rig.reported(MessagesMissed))


@pytest.mark.slow
async def test_parked_message_that_is_gone_stays_as_a_record(rig: LogRig) -> None:
    await expire(rig, gone="1, 2, 3")
    await rig.ask("update {deferred} set state = 'parked' where position = 1")
    assert await delivered(rig.outbox, "g") == []
    assert [(row["position"], row["state"]) for row in await rig.deferrals()] == [(1, "parked")]
    (parked,) = await rig.outbox.parked.list("g")
    assert parked.message is None
