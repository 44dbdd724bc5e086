"""A group that nobody has heard of: refused with the nearest name, or made where that was asked for."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import OutboxWarning, UnknownName
from faststream_outbox.log import Cursor
from tests.cases import case
from tests.log.opened import delivered
from tests.log.rig import LogRig

Ask = Callable[[LogRig, AsyncSession, str, str], Awaitable[Any]]

ASKED: dict[str, Ask] = {
    "seek": lambda rig, session, group, uri: rig.outbox.seek(session, "earliest", group, uri),
    "get_cursor": lambda rig, session, group, uri: rig.outbox.get_cursor(session, group, uri),
    "lag": lambda rig, _, group, uri: rig.outbox.lag(group, uri),
    "lag_by_slot": lambda rig, _, group, uri: rig.outbox.lag_by_slot(group, uri),
    "parked.list": lambda rig, _, group, uri: rig.outbox.parked.list(group, uri),
    "parked.retry": lambda rig, _, group, uri: rig.outbox.parked.retry(group, uri),
    "parked.resolve": lambda rig, _, group, uri: rig.outbox.parked.resolve(group, 1, uri=uri),
    "parked.skip": lambda rig, _, group, uri: rig.outbox.parked.skip(group, 1, uri=uri),
    "groups.list": lambda rig, _, group, uri: rig.outbox.groups.list(group, uri),
    "groups.pause": lambda rig, _, group, uri: rig.outbox.groups.pause(group, uri),
    "groups.resume": lambda rig, _, group, uri: rig.outbox.groups.resume(group, uri),
    "groups.delete": lambda rig, _, group, uri: rig.outbox.groups.delete(group, uri),
}


@pytest.fixture
async def read(rig: LogRig) -> LogRig:
    """A log that two groups have read."""
    await rig.put("orders/1", 1)
    assert await delivered(rig.outbox, "search", "orders") == [1]
    assert await delivered(rig.outbox, "billing") == [1]
    return rig


async def ask(rig: LogRig, asked: str, group: str, uri: str) -> Any:
    async with AsyncSession(rig.engine) as session, session.begin():
        return await ASKED[asked](rig, session, group, uri)


async def test_a_slip_of_the_hand_is_refused_with_the_nearest_name(read: LogRig) -> None:
    for asked in ASKED:
        with case(asked):
            with pytest.raises(UnknownName, match=r"'serch'.* 'search'"):
                await ask(read, asked, "serch", "orders")
            await ask(read, asked, "search", "orders")


async def test_group_that_reads_another_uri_is_named_with_it(read: LogRig) -> None:
    with pytest.raises(UnknownName, match="'search' reads 'orders', not every URI"):
        await ask(read, "seek", "search", "")
    with pytest.raises(UnknownName, match="'billing' reads every URI, not 'orders'"):
        await ask(read, "lag", "billing", "orders")


async def test_nothing_of_a_refused_seek_is_left(read: LogRig) -> None:
    with pytest.raises(UnknownName):
        await ask(read, "seek", "serch", "orders")
    assert await read.spans("serch", "orders") == []
    with pytest.raises(UnknownName, match="create=True"):
        await ask(read, "seek", "something else", "")


async def test_group_is_made_at_a_place_if_asked_for(read: LogRig) -> None:
    await read.put("orders/2", 2)
    async with AsyncSession(read.engine) as session, session.begin():
        assert await read.outbox.seek(session, Cursor(1, 1), "replay", "orders", create=True) == (1, 1)
        assert await read.outbox.get_cursor(session, "replay", "orders") == (1, 1)
    assert await delivered(read.outbox, "replay", "orders") == [2]


async def test_question_about_a_group_before_there_is_any_is_answered(rig: LogRig) -> None:
    assert await rig.outbox.lag("billing") == []
    assert await rig.outbox.parked.list("billing") == []
    with pytest.raises(UnknownName, match="no group is known yet"):
        await ask(rig, "seek", "billing", "")


async def test_asking_for_all_groups_names_none(read: LogRig) -> None:
    assert {lag.group for lag in await read.outbox.lag()} == {"search", "billing"}
    assert {lag.group for lag in await read.outbox.lag(uri="orders")} == {"search"}
    assert await read.outbox.parked.list() == []


async def test_group_whose_cursor_an_operator_deleted_can_still_be_cleared(read: LogRig) -> None:
    await read.ask(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        "values ('gone', '', 1, 1, 0, 'orders/1', 'parked')"
    )
    assert list(await read.outbox.parked.resolve("gone", 1)) == [1]


async def test_group_of_a_reader_that_has_just_started_is_known(read: LogRig) -> None:
    reader = await read.reader("young")
    await read.outbox.client.attach(reader.member)
    assert await read.outbox.lag("young") == []
    await read.outbox.client.detach(reader.member)


async def test_group_whose_members_in_another_process_have_no_slots_yet_is_known(read: LogRig) -> None:
    reader = await read.reader("young", "orders")
    await reader.enter()
    assert await read.outbox.lag("young", "orders") == []
    with pytest.raises(UnknownName, match="'young'"):
        await ask(read, "seek", "yung", "orders")


async def test_position_of_a_group_that_never_read_can_be_set_and_a_near_miss_is_warned_of(read: LogRig) -> None:
    async with AsyncSession(read.engine) as session, session.begin():
        await read.outbox.set_position(session, "projection")
        with pytest.warns(OutboxWarning, match="'serch'.*'search'") as warned:
            await read.outbox.set_position(session, "serch", "orders")
        assert warned[0].filename == __file__
        assert await read.outbox.get_position(session, "never read") == (0, 0)
    assert (await read.outbox.clean(older_than=timedelta(0))).messages == 0
