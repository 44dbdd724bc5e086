"""The client's connections and leases bear the same worker id, so that who holds a message is a join."""

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.identity import parse_name
from tests.queue.rig import POLLING, Gate, Rig, done
from tests.waiting import eventually

HOLDER = (
    "select distinct a.application_name as name from {t} o join pg_stat_activity a"
    " on a.application_name like 'outbox ' || left(o.acquired_token::text, 8) || ' %' where o.queue <> '$paused'"
)


@pytest.mark.parametrize("key", [None, "k"])
async def test_holder_of_a_lease_is_found_by_a_join(rig: Rig, key: str | None) -> None:
    gate = Gate()
    await rig.ended(events.Started, gate, "a", key=key)
    found = [parse_name(row["name"]) for row in await rig.sql(HOLDER)]
    assert {each.worker_id for each in found if each} == {rig.client.identity.worker_id}
    gate.open.set()
    await rig.witness.wait(events.Handled)


async def test_strays_are_leased_under_the_worker_id_too(rig: Rig) -> None:
    gate = Gate()
    await rig.put("a")
    await rig.lease(ago="1 day")
    await rig.work(gate, **POLLING)
    await rig.witness.wait(events.Started)
    assert str((await rig.row())["acquired_token"])[:8] == rig.client.identity.worker_id
    gate.open.set()
    await rig.witness.wait(events.Handled)


async def test_each_connection_says_what_it_is_for(rig: Rig) -> None:
    await rig.work(done)
    await rig.witness.wait(events.ListenerReady)
    await rig.put("a")
    await rig.witness.wait(events.Handled)

    async def all_of_them() -> bool:
        rows = await rig.sql("select application_name from pg_stat_activity where datname = current_database()")
        found = [parse_name(row["application_name"]) for row in rows]
        ours = {each.role for each in found if each and each.worker_id == rig.client.identity.worker_id}
        return ours == {"claim", "scan", "settle", "listen"}

    await eventually(all_of_them)
