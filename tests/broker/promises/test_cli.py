"""FastStream's command line with an application of ours, as processes of their own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Column, Engine, Integer, MetaData, Table, Text, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker
from tests.tables import existing
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BROKER = """
import asyncio
import os

from faststream import FastStream
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.relay import Sent

engine = create_async_engine(os.environ["SHOP_DSN"])
broker = OutboxBroker(engine, outbox_table=make_outbox_table(MetaData()), dlq_table=None, autocommit=True)
app = FastStream(broker)
"""
HANDLING = (
    BROKER
    + """

@broker.subscriber("orders", transactional=True, fetch_batch_size=1)
async def handle(number: int, session: OutboxSession) -> None:
    await session.execute(text("select pg_sleep(0.01)"))
    await session.execute(
        text("insert into handled (number, pid) values (:number, :pid)"), {"number": number, "pid": str(os.getpid())}
    )
"""
)
RELAYING = (
    BROKER
    + """

class FarEnd:
    async def start(self):
        await self.keep([-1])

    async def stop(self): ...

    async def send(self, messages):
        await asyncio.sleep(0.05)
        await self.keep([int(message.body) for message in messages])
        return [Sent()] * len(messages)

    async def keep(self, numbers):
        async with engine.begin() as connection:
            rows = [{"number": number, "pid": str(os.getpid())} for number in numbers]
            await connection.execute(text("insert into handled (number, pid) values (:number, :pid)"), rows)


broker.relay("orders", to=FarEnd(), batch_size=5, max_in_flight=5)
"""
)


@pytest.fixture
def handled(metadata: MetaData, sync_engine: Engine, table: Table) -> Any:
    made = Table("handled", metadata, Column("number", Integer), Column("pid", Text))
    with existing(made, sync_engine):
        yield made


class Shop:
    """The application in a directory of its own, and what its processes wrote."""

    def __init__(self, directory: Path, url: URL, engine: Engine) -> None:
        self.directory = directory
        self.engine = engine
        (directory / "shop.py").write_text(HANDLING)
        dsn = url.render_as_string(hide_password=False)
        self._environment = os.environ | {"SHOP_DSN": dsn, "PYTHONPATH": str(Path(__file__).parents[3])}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        # A group of its own, so that its children end with it.
        return await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("faststream")),
            *arguments,
            cwd=self.directory,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )

    async def run(self, *arguments: str) -> str:
        """Run to the end; the output."""
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run in the background, and end by SIGTERM."""
        process = await self.start("run", "shop:app", *arguments)
        drained = asyncio.create_task(process.communicate())
        try:
            yield process
            process.terminate()
            async with asyncio.timeout(30):
                await drained
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await drained

    def publish(self, broker: OutboxBroker, numbers: range) -> None:
        with Session(self.engine) as session, session.begin():
            for number in numbers:
                broker.publish_sync(number, "orders", session=session)

    def done(self) -> list[tuple[int, str]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text("select number, pid from handled order by number"))]

    def left(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("select count(*) from outbox")).scalar_one())


@pytest.fixture
def shop(tmp_path: Path, database_url: URL, sync_engine: Engine, handled: Table) -> Shop:
    return Shop(tmp_path, database_url, sync_engine)


@pytest.fixture
def broker(database_url: URL, table: Table) -> OutboxBroker:
    return OutboxBroker(create_async_engine(database_url), outbox_table=table, logger=None)


async def test_workers_of_one_command_share_what_they_relay(shop: Shop, broker: OutboxBroker) -> None:
    (shop.directory / "shop.py").write_text(RELAYING)
    async with shop.running("--workers", "2"):
        await eventually(lambda: len(shop.done()) == 2, timeout=60, message="two processes relay")
        shop.publish(broker, range(200))
        await eventually(lambda: not shop.left(), timeout=60)
    relayed = [(number, pid) for number, pid in shop.done() if number >= 0]
    assert [number for number, _ in relayed] == [*range(200)]
    assert len({pid for _, pid in relayed}) == 2


async def test_four_processes_share_the_work_and_none_does_it_twice(shop: Shop, broker: OutboxBroker) -> None:
    async with shop.running(), shop.running(), shop.running(), shop.running():
        shop.publish(broker, range(8))
        await eventually(lambda: not shop.left(), timeout=60)
        shop.publish(broker, range(8, 400))
        await eventually(lambda: not shop.left(), timeout=60)
    done = shop.done()
    assert [number for number, _ in done] == [*range(400)]
    assert len({pid for _, pid in done}) > 1


async def test_publish_writes_a_message(shop: Shop, sync_engine: Engine) -> None:
    await shop.run("publish", "shop:app", "hello", "--queue", "orders", "--key", "k", "--correlation_id", "c1")
    with sync_engine.connect() as connection:
        rows = connection.execute(text("select queue, payload, key, headers->>'correlation_id' from outbox")).all()
    assert [tuple(row) for row in rows] == [("orders", b"hello", "k", "c1")]


async def test_documents_are_written(shop: Shop) -> None:
    await shop.run("docs", "gen", "shop:app", "--out", "asyncapi.json")
    document = json.loads((shop.directory / "asyncapi.json").read_text())
    assert "orders:Handle" in document["channels"]
