"""The first page: an application whose queue is a table, and what publishing in its transaction promises."""

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from faststream_outbox import OutboxBroker, make_outbox_table
from tests.contract.outside import App, Outside
from tests.contract.running import run
from tests.tables import existing
from tests.waiting import eventually

QUICK_START = """\
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from faststream import FastStream
from faststream_outbox import OutboxBroker, make_outbox_table

metadata = MetaData()
outbox_table = make_outbox_table(metadata, table_name="outbox")

engine = create_async_engine("postgresql+asyncpg://localhost/app")
broker = OutboxBroker(engine, outbox_table=outbox_table)
app = FastStream(broker)

@broker.subscriber("orders", max_workers=4)
async def handle(order_id: int) -> None:
    print(f"order {order_id}")

# Producer side — share the caller's open transaction:
session_factory = async_sessionmaker(engine, expire_on_commit=False)
async with session_factory() as session, session.begin():
    session.add(Order(id=1))
    await broker.publish(1, queue="orders", session=session)
"""


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "app_order"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture
def orders(sync_engine: Engine) -> Iterator[Any]:
    """The application's own table."""
    with existing(Order.__table__, sync_engine) as table:  # type: ignore[arg-type]
        yield table


@pytest.fixture
async def quick_start(database_url: URL, table: Table, orders: Table) -> AsyncIterator[dict[str, Any]]:
    """The names of the snippet after it has run, and what it has printed."""
    printed: list[str] = []
    names = await run(QUICK_START, {"Order": Order, "print": printed.append}, database_url)
    yield names | {"printed": printed}
    await names["broker"].stop()
    await names["engine"].dispose()


async def test_snippet_commits_the_entity_and_its_message_together(
    quick_start: dict[str, Any], outside: Outside
) -> None:
    assert (outside.sql("select id from app_order"), outside.row()["payload"]) == ([{"id": 1}], b"1")


async def test_snippet_delivers_the_message_and_deletes_its_row(quick_start: dict[str, Any], outside: Outside) -> None:
    await quick_start["app"].start()
    await eventually(outside.is_empty)
    assert quick_start["printed"] == ["order 1"]


async def test_stopping_the_application_leaves_the_engine_open(quick_start: dict[str, Any]) -> None:
    engine: AsyncEngine = quick_start["engine"]
    async with engine.connect() as held:
        await quick_start["app"].start()
        await quick_start["app"].stop()
        assert await held.scalar(text("select 1")) == 1
        assert engine.pool.checkedout() == 1  # type: ignore[attr-defined]


async def test_stopping_sends_the_wake_up_of_the_last_commit(app: App) -> None:
    app.sql('listen "outbox_outbox"')
    await app.publish(1)
    await app.broker.stop()
    # Already there, without a moment more for the event loop.
    assert len(list(app.connection.notifies(timeout=30, stop_after=1))) == 1


def test_make_outbox_table_gives_a_table_of_the_callers_metadata() -> None:
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="outbox")
    assert isinstance(table, Table)
    assert metadata.tables["outbox"] is table


async def test_message_of_a_rolled_back_transaction_never_was(app: App) -> None:
    await app.session.begin()
    await app.broker.publish(1, queue="orders", session=app.session)
    await app.session.rollback()
    assert app.is_empty()


async def test_publish_does_not_commit(app: App) -> None:
    async with app.session.begin():
        await app.broker.publish(1, queue="orders", session=app.session)
        assert app.is_empty()
    assert len(app.rows()) == 1


async def test_publish_does_not_flush(app: App, orders: Table) -> None:
    async with app.session.begin():
        order = Order(id=1)
        app.session.add(order)
        await app.broker.publish(1, queue="orders", session=app.session)
        assert order in app.session.new


async def test_publish_opens_no_transaction_of_its_own(app: App, statements: list[str]) -> None:
    async with app.session.begin():
        transaction = app.session.get_transaction()
        statements.clear()
        await app.broker.publish(1, queue="orders", session=app.session)
        assert app.session.get_transaction() is transaction
        assert not app.session.in_nested_transaction()
        assert len(statements) == 1


def test_publish_has_the_documented_parameters() -> None:
    parameters = inspect.signature(OutboxBroker.publish).parameters
    documented = ["headers", "correlation_id", "activate_in", "activate_at", "timer_id"]
    assert {"queue", "session"} <= set(parameters)
    assert [parameters[name].default for name in documented] == [None] * 5


def test_publish_batch_has_the_documented_parameters() -> None:
    parameters = inspect.signature(OutboxBroker.publish_batch).parameters
    bodies = [name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL]
    assert len(bodies) == 1
    assert [parameters[name].default for name in ("headers", "activate_in", "activate_at")] == [None] * 3


async def test_publish_carries_headers_and_correlation_id(app: App) -> None:
    async with app.session.begin():
        await app.broker.publish(
            {"a": 1}, queue="orders", session=app.session, headers={"x": "y"}, correlation_id="c-1"
        )
    headers = app.row()["headers"]
    assert (headers["x"], headers["correlation_id"]) == ("y", "c-1")


async def test_publish_batch_inserts_many_rows_with_one_statement(app: App, statements: list[str]) -> None:
    async with app.session.begin():
        statements.clear()
        await app.broker.publish_batch(1, 2, 3, queue="orders", session=app.session)
        assert len(statements) == 1
    assert [row["payload"] for row in app.rows()] == [b"1", b"2", b"3"]


async def test_publish_batch_rolls_back_with_the_callers_transaction(app: App) -> None:
    await app.session.begin()
    await app.broker.publish_batch(1, 2, 3, queue="orders", session=app.session)
    await app.session.rollback()
    assert app.is_empty()


async def test_headers_of_a_batch_go_to_every_message(app: App) -> None:
    async with app.session.begin():
        await app.broker.publish_batch(1, 2, queue="orders", session=app.session, headers={"x": "y"})
    assert [row["headers"]["x"] for row in app.rows()] == ["y", "y"]
