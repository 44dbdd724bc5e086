"""Keys below the floors: one look from the beginning finds all of them, whatever else lies in the table.

Nobody polls, watches or listens here: what the look after a call does not find is not found at all.
"""

from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue import scanner as searching
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.queue import OutboxClient, pause, resume
from tests.queue.rig import Rig, done, hinted
from tests.waiting import eventually

KEYS = 3 * searching.KEYS_PER_WALK
ROWS = (
    "insert into {t} (queue, payload, key, next_attempt_at)"
    " select 'orders', '1', :prefix || n, now() + make_interval(secs => :due_in) from generate_series(1, :keys) n"
)
EXPIRE = "update {t} set acquired_at = now() - interval '1 h' where key like 'z%'"


async def begin(rig: Rig, **options: Any) -> OutboxClient:
    """A worker that has looked at everything once and found nothing to do."""
    client = rig.another_client(watch=False, listen=False)
    worker = await rig.work(done, client=client, **options)
    plan = client.plans.open()[worker]

    def has_passed_all() -> bool:
        lane = plan.lanes.get(("orders", 0, True))
        return lane is not None and lane.has_passed_all and not plan.keys and plan.earliest_scan > 0

    await eventually(has_passed_all)
    return client


async def test_every_key_of_a_resumed_queue_is_found_by_one_look(rig: Rig, sent: list[str]) -> None:
    await pause(rig.client, "orders", create=True)
    await rig.sql(ROWS, prefix="k", due_in=-10.0, keys=KEYS)
    client = await begin(rig, fetch_batch_size=500)
    sent.clear()
    await resume(client, "orders")
    await eventually(rig.is_empty, timeout=30)
    assert sent.count("walk_keys") == 0


async def test_a_key_is_found_beside_many_that_wait_for_later(rig: Rig, sent: list[str]) -> None:
    await rig.sql(ROWS, prefix="a", due_in=3600.0, keys=KEYS)
    await rig.sql(ROWS, prefix="z", due_in=-10.0, keys=1)
    await rig.lease("key like 'z%'")
    client = await begin(rig)
    await rig.sql(EXPIRE)
    sent.clear()
    hinted(client, Hint("orders", scan=True))
    await rig.witness.wait(events.Handled)
    assert sent.count("walk_keys") == 0


async def test_where_too_much_is_due_the_keys_are_walked_to_the_end(
    rig: Rig, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but one message belong to keys in other hands: looking at each message of theirs would be in vain."""
    monkeypatch.setattr(searching, "MOST_DUE", 20)
    monkeypatch.setattr(searching, "KEYS_PER_WALK", 5)
    for _ in range(3):
        await rig.sql(ROWS, prefix="a", due_in=-10.0, keys=12)
    await rig.sql(ROWS, prefix="z", due_in=-5.0, keys=1)
    await rig.lease()
    client = await begin(rig)
    await rig.sql(EXPIRE)
    sent.clear()
    hinted(client, Hint("orders", scan=True))
    await rig.witness.wait(events.Handled)
    assert sent.count("walk_keys") == 3
