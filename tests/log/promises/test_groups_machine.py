"""Members under any interleaving: spans stay every slot exactly once, and only whoever holds a slot moves it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import URL, Engine, MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.log.member import Batch
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group, partition
from faststream_outbox.events import Events
from faststream_outbox.log import Cursor, Outbox, make_log_tables
from tests.log.promises.test_sequencer_machine import run

pytestmark = pytest.mark.slow

MEMBERS = 4
OFFSETS = "machine_offsets"
who = st.integers(0, MEMBERS - 1)


class Machine(RuleBasedStateMachine):
    """Members that join, renew, move, cut, leave, are taken for dead; an operator that seeks."""

    url: URL

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.engine = create_async_engine(self.url, poolclass=NullPool)
        self.outbox = Outbox(self.engine, "machine", OFFSETS, events=Events(), listen=False)
        self.ask(f"truncate {OFFSETS}, machine_members")
        self.readers = [self.reader() for _ in range(MEMBERS)]
        self.at = [0] * 256
        """Where each slot stands, by the moves that succeeded."""
        self.clock = 0
        self.is_made = False

    def reader(self, fixed: tuple[int, int] | None = None) -> Reader:
        return Reader.of(self.outbox.client, Group("g"), ReadOptions(lease_ttl_seconds=3600.0), fixed=fixed)

    def ask(self, statement: str) -> list[Any]:
        async def asked() -> list[Any]:
            async with self.engine.begin() as connection:
                result = await connection.execute(text(statement))
                return list(result.all()) if result.returns_rows else []

        return self.run(asked())

    @rule(number=who)
    def join(self, number: int) -> None:
        self.run(self.readers[number].join())

    @rule(numbers=st.lists(who, unique=True, min_size=2))
    def join_at_once(self, numbers: list[int]) -> None:
        async def joined() -> None:
            await asyncio.gather(*(self.readers[number].join() for number in numbers))

        self.run(joined())

    @rule(number=who)
    def renew(self, number: int) -> None:
        self.run(self.outbox.client.renewing.renew([self.readers[number].member]))

    @rule(number=who)
    def leave(self, number: int) -> None:
        self.run(self.readers[number].leave())

    @rule(number=who, slot=st.integers(0, 255))
    def isolate(self, number: int, slot: int) -> None:
        self.run(self.readers[number].member.leases.isolate(slot))

    @rule(number=who, count=st.integers(1, 7), data=st.data())
    def become_a_static_share(self, number: int, count: int, data: st.DataObject) -> None:
        """Another process in place of the old one, which stays a zombie's worth of leases."""
        self.readers[number] = self.reader(partition(data.draw(st.integers(0, count - 1)), count))

    @rule(number=who)
    def be_killed_and_started_again(self, number: int) -> None:
        self.readers[number] = self.reader()

    @rule()
    def all_leases_end(self) -> None:
        self.ask(f"update {OFFSETS} set until = now() - interval '1 s' where owner is not null")
        self.ask("delete from machine_members")

    @rule(number=who, data=st.data())
    def move(self, number: int, data: st.DataObject) -> None:
        """Move some of what a member believes to hold; what it does not hold any more must stay."""
        reader = self.readers[number]
        held = [span for span in reader.member.leases.spans.values() if data.draw(st.booleans())]
        self.clock += 1
        place = Cursor(1, self.clock)
        self.run(reader.settler.settle(Batch([], held, place), place))
        for span in reader.member.leases.spans.values():
            if span.cursor == place:
                self.at[span.lo : span.hi + 1] = [self.clock] * span.size

    @rule()
    def seek(self) -> None:
        async def sought() -> None:
            async with AsyncSession(self.engine) as session, session.begin():
                await self.outbox.seek(session, Cursor(0, 0), "g", create=True)

        self.run(sought())
        self.at = [0] * 256

    @invariant()
    def spans_are_every_slot_once_and_stand_where_they_were_moved(self) -> None:
        rows = self.ask(f"select lo, hi, position from {OFFSETS} order by lo")
        slots = [slot for lo, hi, _ in rows for slot in range(lo, hi + 1)]
        assert slots == (list(range(256)) if rows else [])
        stand = [position for lo, hi, position in rows for _ in range(lo, hi + 1)]
        assert stand == (self.at if rows else [])

    def teardown(self) -> None:
        try:
            self.all_leases_end()
            self.readers = [self.reader() for _ in range(3)]
            for _ in range(3):
                for number in range(3):
                    self.join(number)
            assert sum(reader.member.leases.size for reader in self.readers) == 256, "slots that nobody holds"
            self.spans_are_every_slot_once_and_stand_where_they_were_moved()
        finally:
            self.run(self.outbox.cleanup())
            self.run(self.engine.dispose())
            self.runner.close()


@pytest.fixture
def machine(database_url: URL, sync_engine: Engine) -> Iterator[type[Machine]]:
    """The machine on tables of its own."""
    tables = make_log_tables(MetaData(), "machine", OFFSETS)
    tables.log.metadata.create_all(sync_engine)
    yield type("GroupMachine", (Machine,), {"url": database_url})
    tables.log.metadata.drop_all(sync_engine)


def test_no_interleaving_of_members_loses_a_slot_or_moves_one_of_others(machine: type[Machine]) -> None:
    run(machine, examples=20, steps=25)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_long_interleaving_of_members_loses_a_slot_or_moves_one_of_others(machine: type[Machine]) -> None:
    run(machine, examples=300, steps=25, explore=True)
