"""A table of receipts, one of effects, and inboxes on them."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, Text, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import Inbox, events, make_inbox_table
from tests.tables import all_existing


class Scene:
    """Receipts, effects, and what the inboxes reported."""

    def __init__(self, engine: AsyncEngine, metadata: MetaData) -> None:
        self.engine = engine
        self.table: Table = make_inbox_table(metadata)
        self.effects = Table("effects", metadata, Column("what", Text))
        self.reported: list[Any] = []
        self.inboxes: list[Inbox] = []

    def inbox(self, consumer: str = "billing", **options: Any) -> Inbox:
        inbox = Inbox(options.pop("engine", self.engine), self.table, consumer=consumer, **options)
        inbox.events.subscribe(self.reported.append)
        self.inboxes.append(inbox)
        return inbox

    async def write(self, session: AsyncSession, what: str) -> None:
        await session.execute(insert(self.effects).values(what=what))

    async def written(self) -> list[str]:
        async with self.engine.connect() as connection:
            return sorted((await connection.execute(select(self.effects.c.what))).scalars())

    async def receipts(self) -> list[tuple[str, str, str]]:
        columns = self.table.c
        async with self.engine.connect() as connection:
            rows = await connection.execute(select(columns.consumer, columns.source, columns.message_id))
            return sorted((consumer, source, message_id) for consumer, source, message_id in rows)

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(event, kind) for event in self.reported)

    @property
    def duplicates(self) -> int:
        return self.count(events.DuplicateSkipped)


@pytest.fixture
async def scene(engine: AsyncEngine, metadata: MetaData, builder: Engine) -> AsyncIterator[Scene]:
    made = Scene(engine, metadata)
    with all_existing([made.table, made.effects], builder):
        yield made
        for inbox in made.inboxes:
            await inbox.stop()
        await engine.dispose()


@pytest.fixture
def sync_scene(metadata: MetaData, builder: Engine) -> Iterator[tuple[Table, Table]]:
    table, effects = make_inbox_table(metadata), Table("effects", metadata, Column("what", Text))
    with all_existing([table, effects], builder):
        yield table, effects
