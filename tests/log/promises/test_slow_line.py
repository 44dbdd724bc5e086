"""Messages so large, on a line so slow, that as many as usual do not come through in time: fewer are read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.log import Outbox
from tests.log.opened import Collector, delivered, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually


@contextmanager
def slow(outbox: Outbox, most: int) -> Iterator[list[int]]:
    """A line on which no more than so many messages come through in time; what was asked for."""
    connection, asked = outbox.client.connection, list[int]()
    fetch = connection.fetch

    async def sent(statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name in ("fetch", "fetch_deferred"):
            asked.append(values["limit"])
            if values["limit"] > most:
                raise TimeoutError
        return await fetch(statement, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "fetch", sent)
        yield asked


async def test_half_as_many_are_read_until_they_come_through(rig: LogRig) -> None:
    await rig.put("k", *range(20))
    with slow(rig.outbox, most=3) as asked:
        assert await delivered(rig.outbox, "g") == list(range(20))
    assert asked[:6] == [100, 50, 25, 12, 6, 3]
    assert max(asked[6:]) <= 3, "it was tried again and again"


@pytest.mark.slow
async def test_what_waits_to_be_retried_is_read_so_too(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.001))

    for number in range(8):
        await rig.put(f"k{number}", number)
    await outbox.dispatch(refuse, "g")
    collector = Collector()
    with slow(outbox, most=2):
        await eventually(lambda: _all_of(outbox, collector), 20.0)
    assert sorted(collector.payloads) == list(range(8))


async def _all_of(outbox: Outbox, collector: Collector) -> bool:
    await outbox.dispatch(collector, "g")
    return len(collector.messages) == 8


async def test_after_some_time_as_many_as_usual_are_tried_again(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.put("k", *range(4))
    with slow(rig.outbox, most=2):
        await rig.outbox.dispatch(Collector(), "g")
    monkeypatch.setattr("faststream_outbox._internal.log.fetcher.NARROW_SECONDS", 0.0)
    with slow(rig.outbox, most=1000) as asked:
        await rig.outbox.dispatch(Collector(), "g")
    assert asked[0] == 100
