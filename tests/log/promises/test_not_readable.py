"""A message whose content cannot be read is parked, and nobody waits for it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.log import Outbox
from tests.log.opened import Collector, drain, reading, reading_batches, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually

POISON = "poison"
GOOD = [1, 2, 3, 4]


class Transfer:
    """Answers with a certain payload in them cannot be read, on one connection."""

    def __init__(self, outbox: Outbox, patch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.error = error or ValueError("unreadable")
        self.failures = 0
        self.is_good = False
        fetch = outbox.client.connection.fetch

        async def carried(statement: Statement, values: Mapping[str, Any]) -> Any:
            rows = await fetch(statement, values)
            if not self.is_good and any(value == f'"{POISON}"' for row in rows for value in row):
                self.failures += 1
                raise self.error
            return rows

        patch.setattr(outbox.client.connection, "fetch", carried)


@pytest.fixture(autouse=True)
def strikes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.log.fetcher.STRIKE_SECONDS", 0.0)


def run(outbox: Outbox, seen: Collector) -> Any:
    return reading(outbox, seen, "g")


def run_in_transactions(outbox: Outbox, seen: Collector) -> Any:
    return reading(outbox, seen, "g", transactional=True)


def run_batches(outbox: Outbox, seen: Collector) -> Any:
    return reading_batches(outbox, seen, "g")


@asynccontextmanager
async def iterate(outbox: Outbox, seen: Collector) -> AsyncGenerator[None]:
    async def loop() -> None:
        # As an application would, whose loop ends with the connection.
        while True:
            try:
                async for message in outbox.messages("g"):
                    await seen(message)
            except ValueError:
                continue

    running = asyncio.create_task(loop())
    yield
    running.cancel()
    await asyncio.wait([running])


Way = Callable[[Outbox, Collector], Any]


@pytest.mark.slow
@pytest.mark.parametrize("way", [run, run_in_transactions, run_batches, iterate])
async def test_its_neighbours_get_through(rig: LogRig, monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    transfer, seen = Transfer(rig.outbox, monkeypatch), Collector()
    await rig.put("a", *GOOD[:2])
    (poison,) = (await rig.put("b", POISON)).positions
    await rig.put("b", *GOOD[2:])

    async def all_is_over() -> bool:
        return sorted(seen.payloads) == GOOD and not sum(span.messages for span in await rig.outbox.lag("g"))

    async with way(rig.outbox, seen):
        await eventually(all_is_over)
    (parked,) = await rig.outbox.parked.list("g")
    assert (parked.position, parked.error_type) == (poison, "faststream_outbox.errors.NotReadable")
    assert f"ValueError: {transfer.error}" in (parked.error_message or "")


async def dispatched(outbox: Outbox, seen: Collector) -> None:
    """Dispatch until there is nothing left, as often as it fails."""
    while True:
        try:
            await drain(outbox, seen, "g")
        except (ValueError, TimeoutError):
            continue
        return


@pytest.mark.parametrize("error", [ValueError("unreadable"), TimeoutError()], ids=["unreadable", "too large"])
async def test_is_told_with_its_group(rig: LogRig, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """So is one that is too large for the line."""
    seen = Collector()
    Transfer(rig.outbox, monkeypatch, error)
    await rig.put("a", 1, POISON, 2)
    await dispatched(rig.outbox, seen)
    (died,) = rig.reported(events.Died)
    assert (died.reason, died.group, type(died.error).__name__) == ("not_readable", "g", "NotReadable")
    assert (seen.payloads, len(rig.reported(events.Started))) == ([1, 2], 2)


async def test_each_group_parks_it_and_only_the_first_one_waits(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = Transfer(rig.outbox, monkeypatch)
    await rig.put("a", POISON)
    await dispatched(rig.outbox, Collector())
    failures = transfer.failures
    await drain(rig.outbox, Collector(), "another")
    assert len(await rig.outbox.parked.list("another")) == 1
    assert transfer.failures == failures


async def test_runs_in_its_place_once_it_can_be_read(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, seen = await rig.another(on_parked="hold_key"), Collector()
    transfer = Transfer(outbox, monkeypatch)
    await rig.put("a", 1, POISON, 2)
    await dispatched(outbox, seen)
    assert seen.payloads == [1]
    await outbox.parked.retry("g")
    await dispatched(outbox, seen)
    assert len(await outbox.parked.list("g")) == 1
    transfer.is_good = True
    monkeypatch.setattr(outbox.client.fetcher, "unreadable", type(outbox.client.fetcher.unreadable)())
    await outbox.parked.retry("g")
    await dispatched(outbox, seen)
    assert seen.payloads == [1, POISON, 2]


async def test_one_that_waits_for_its_retry_is_found_out_too(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, seen = rig.outbox, Collector()
    await rig.put("a", POISON)
    await rig.put("b", 1)
    await outbox.dispatch(refuse, "g")
    await rig.ask("update {deferred} set due = now() where state = 'retry'")
    Transfer(outbox, monkeypatch)

    async def is_parked() -> bool:
        await dispatched(outbox, seen)
        return bool(await outbox.parked.list("g"))

    await eventually(is_parked)
    assert seen.payloads == [1]


async def test_line_that_breaks_is_no_message_s_fault(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer, seen = Transfer(rig.outbox, monkeypatch, ConnectionResetError()), Collector()
    await rig.put("a", POISON)
    for _ in range(20):
        with pytest.raises(ConnectionResetError):
            await rig.outbox.dispatch(seen, "g")
    transfer.is_good = True
    await drain(rig.outbox, seen, "g")
    assert seen.payloads == [POISON]


async def test_one_that_waits_for_a_lock_is_not_to_blame(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored apart has an index of its own, which a REINDEX locks for as long as it takes."""
    monkeypatch.setattr("faststream_outbox._internal.log.client.LOCK_PATIENCE", 0.1)
    outbox, seen = await rig.another(), Collector()
    await rig.put_apart("a", Random(1).randbytes(20_000).hex())
    (found,) = await rig.ask(
        "select i.indexrelid::regclass::text as name from pg_class c join pg_index i on i.indrelid = c.reltoastrelid"
        " where c.oid = cast('{log}' as regclass)"
    )
    writer = await rig.writer()
    await writer.execute(f"reindex index {found['name']}")
    refusals: list[str | None] = []
    for _ in range(5):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of whichever driver it is
            await outbox.dispatch(seen, "g")
        refusals.append(getattr(caught.value, "sqlstate", None))
    assert refusals == ["55P03"] * 5
    await writer.rollback()
    await drain(outbox, seen, "g")
    assert len(seen.payloads) == 1
