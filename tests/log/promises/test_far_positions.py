"""A position that nobody can have drawn is passed over: it must not move the numbers of all who come later."""

import pytest

from faststream_outbox._internal.events.types import SequenceAdvanced
from tests.log.opened import delivered
from tests.log.rig import LogRig

LARGEST = 2**63 - 1
FAR = 10**12
BY_HAND = (
    "insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id) "
    "values (cast(:position as bigint), 'far', 7, '0', '{}', now(), 1)"
)


@pytest.mark.parametrize("far", [LARGEST, LARGEST - FAR, 2**62, 2**62 - 1, 10 * FAR, 0, -LARGEST - 1])
async def test_far_position_stops_nobody(rig: LogRig, far: int) -> None:
    await rig.put_apart("a", 1)
    await rig.ask(BY_HAND, position=far)
    for number in range(2, 5):
        await rig.sequence()
        assert (await rig.put("a", number)).positions == (number,)
    assert await delivered(rig.outbox, "g") == [1, 2, 3, 4]
    assert rig.reported(SequenceAdvanced) == []


async def test_copy_without_its_sequence_is_mended_next_to_a_far_position(rig: LogRig) -> None:
    await rig.put("a", 1, 2, 3)
    await rig.sequence()
    await rig.ask(BY_HAND, position=LARGEST)
    await rig.ask("select setval('{sequence_name}', 1)")
    await rig.sequence()
    assert (await rig.put("a", 4)).positions == (4,)
    assert await delivered(rig.outbox, "g") == [1, 2, 3, 4]


async def test_numbers_near_their_end_are_still_sequenced(rig: LogRig) -> None:
    await rig.put_apart("a", 1)
    end = LARGEST - 10
    await rig.ask("update {head_table} set high = :end", end=end)
    await rig.ask("select setval('{sequence_name}', :end)", end=end)
    await rig.put_apart("a", 2)
    assert (await rig.order())[-1][1] == end + 1
