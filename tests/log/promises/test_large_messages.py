"""Messages so large that a whole batch of them would fill the memory: fewer are read at once, and at least one."""

import secrets
from typing import Any

import pytest

from tests.log.opened import Collector
from tests.log.rig import LogRig

MODULE = "faststream_outbox.log.fetcher.READ_BYTES"


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
