"""Messages so large that a whole batch of them would fill the memory: fewer are read at once, and at least one."""

import json
import secrets
from typing import Any

import pytest

from faststream_outbox._internal.log.sharing.slots import as_filters
from faststream_outbox._internal.sql.statements import statements
from tests.log.opened import Collector
from tests.log.rig import LogRig

MODULE = "faststream_outbox._internal.log.fetcher.READ_BYTES"
ALL_SLOTS = 2**256 - 1


async def sizes(rig: LogRig, **options: Any) -> list[int]:
    """How many messages each dispatch of a group handles, until there are no more."""
    collector, found = Collector(), list[int]()
    while done := await rig.outbox.dispatch(collector, "g", **options):
        found.append(done.handled)
    return found


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(lambda: secrets.token_bytes(10_000), id="stored as it is"),
        pytest.param(lambda: b"x" * 10_000, id="bytes that are compressed"),
        pytest.param(lambda: "x" * 10_000, id="JSON that is compressed"),
    ],
)
async def test_no_more_are_read_than_have_so_many_bytes(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch, payload: Any
) -> None:
    monkeypatch.setattr(MODULE, 25_000)
    await rig.put("k", *[payload() for _ in range(7)])
    assert await sizes(rig) == [3, 3, 1]


async def test_message_that_is_larger_than_that_comes_alone(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, 25_000)
    await rig.put("k", "small", "x" * 100_000, "small", "x" * 100_000)
    assert await sizes(rig) == [2, 2]


async def test_headers_count_too(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, 25_000)
    await rig.put("k", *range(4), large="x" * 10_000)
    assert await sizes(rig) == [3, 1]


async def test_messages_that_are_too_many_bytes_are_not_even_decompressed(rig: LogRig) -> None:
    await rig.put("k", *["x" * 1_000_000 for _ in range(20)])
    fetch = statements("log", rig.outbox.client.names)["fetch"]
    touched: list[int] = []
    for last in (2, 20):
        window = {"ticks": [1], "los": [1], "his": [last], "limit": 100, "bytes": 5000, "unreadable": []}
        asked = window | as_filters({"": ALL_SLOTS})
        async with rig.engine.connect() as connection:
            # The first one reads the catalog too.
            for _ in range(2):
                plan = await connection.exec_driver_sql(
                    f"explain (analyze, buffers, timing off, format json) {fetch.dollar}", fetch.arguments(asked)
                )
                found = plan.scalar_one()
        (tree,) = found if isinstance(found, list) else json.loads(found)
        assert tree["Plan"]["Actual Rows"] == 1
        touched.append(tree["Plan"]["Shared Hit Blocks"] + tree["Plan"]["Shared Read Blocks"])
    assert touched[1] <= touched[0] + 2
