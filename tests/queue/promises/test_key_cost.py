"""What it costs to find the head of a key stays bounded, however deep the keys and whoever holds them.

pg-boss#849: looking for heads with NOT EXISTS was quadratic in the depth of the keys, 200 keys of 1,000
messages took eight seconds.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue.lanes import BEGINNING
from tests.queue.rig import Cost, Rig, asking, done

KEYS, EACH = 200, 250

FILL = """
insert into {t} (queue, payload, key, next_attempt_at)
select 'orders', '', 'k' || key, now() - interval '1 h' from generate_series(1, :each) n, generate_series(1, :keys) key
order by n, key
"""
HEADS = "id in (select min(id) from {t} group by key)"

FIND: Mapping[str, Any] = {
    **{"queues": ["orders"], "priorities": [0], "floor_ats": [BEGINNING], "floor_ids": [0]},
    **{"quotas": [500]},
}
WALK: Mapping[str, Any] = {
    **{"queue": "orders", "after": "", "keys": 500, "ttl": 60.0, "unheard": [], "held_by_dead": True},
}


async def costs(rig: Rig, *, continued: bool = True) -> dict[str, Cost]:
    """Each statement in a transaction that is rolled back; a hundred keys are claimed, held before or not."""
    found: dict[str, Cost] = {}
    second = "select (array_agg(id order by id))[2] as id from {t} group by key order by substr(key, 2)::int"
    nexts = [row["id"] if continued else None for row in (await rig.sql(second))[:100]]
    claim = asking(*(f"k{number}" for number in range(1, 101)), nexts=nexts)
    asked = (("keys", "find_keys", FIND), ("scan", "walk_keys", WALK), ("keys", "claim_keys", claim))
    for file, name, values in asked:
        async with rig.engine.connect() as connection:
            found[name] = await rig.explain(file, name, values, connection)
            await connection.rollback()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["none", "fresh"])
@pytest.mark.parametrize(
    ("leased", "continued"),
    [(False, True), (True, True), (True, False)],
    ids=["free, held before", "every head leased, held before", "every head leased"],
)
async def test_looking_for_heads_is_linear_in_what_is_asked_for(
    rig: Rig, leased: bool, continued: bool, statistics: str
) -> None:
    await rig.sql("alter table {t} set (autovacuum_enabled = off)")
    await rig.sql(FILL, keys=KEYS, each=EACH)
    if leased:
        await rig.lease(HEADS)
    if statistics == "fresh":
        await rig.sql("analyze {t}")
    touched = await costs(rig, continued=continued)
    assert touched["find_keys"].rows <= 500
    assert touched["walk_keys"].rows <= 10 * KEYS
    assert touched["claim_keys"].rows <= 100 * 50
    assert max(cost.buffers for cost in touched.values()) <= 20_000, touched


@pytest.mark.slow
async def test_joining_a_free_key_reads_it_once(rig: Rig) -> None:
    """A lease may be anywhere in a key that was in other hands: all of it is looked at, and nothing twice."""
    await rig.sql(FILL, keys=KEYS, each=EACH)
    touched = await costs(rig, continued=False)
    assert touched["claim_keys"].rows <= 100 * EACH * 1.1


async def test_a_message_without_key_pays_for_none_of_it(rig: Rig, sent: list[str]) -> None:
    await rig.work(done)
    for count in range(1, 51):
        await rig.put("x")
        await rig.witness.wait(events.Handled, count=count)
    assert not {"claim_keys", "claimable_keys", "walk_keys"} & set(sent)
    # Only when all that is known is that there may be something.
    assert sent.count("find_keys") < 25
