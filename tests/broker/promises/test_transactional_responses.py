"""An `OutboxResponse` goes into the transaction that its handler worked in."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from faststream import Depends
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, NoRetry, OutboxResponse
from faststream_outbox.annotations import OutboxSession
from tests.broker.effects import EffectsShop

LATER = ConstantRetry(delay_seconds=1000)


async def test_response_with_the_transactional_session_is_published_once(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        await shop.write(session, body)
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1], messages={"returned": [b"1"]})


async def test_response_without_a_session_joins_the_transaction(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        await shop.write(session, body)
        await session.flush()
        return OutboxResponse(body, queue="returned")

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1], messages={"returned": [b"1"]})


async def test_response_with_the_session_of_a_dependency_commits_in_the_dependency(shop: EffectsShop) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    @shop.broker.subscriber("orders")
    async def handle(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        await shop.write(session, body)
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1], messages={"returned": [b"1"]})


async def test_response_with_the_session_of_a_dependency_that_fails_to_commit_is_not_published(
    shop: EffectsShop,
) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session:
            await session.begin()
            yield session
            await session.rollback()
            raise ConnectionError

    @shop.broker.subscriber("orders", retry_strategy=LATER)
    async def handle(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        await shop.write(session, body)
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


async def test_response_is_published_and_also_given_to_decorators(shop: EffectsShop) -> None:
    @shop.broker.publisher("decorated")
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"returned": [b"1"], "decorated": [b"1"]})


async def test_response_with_the_session_of_a_dependency_is_given_to_decorators_in_a_transaction_of_their_own(
    shop: EffectsShop,
) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    @shop.broker.publisher("decorated")
    @shop.broker.subscriber("orders")
    async def handle(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"returned": [b"1"], "decorated": [b"1"]})


async def test_response_of_a_handler_that_is_an_object_is_published_in_its_session(shop: EffectsShop) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    class Handler:
        async def __call__(self, body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
            return OutboxResponse(body, queue="returned", session=session)

    shop.broker.subscriber("orders")(Handler())
    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"returned": [b"1"]})


async def test_response_of_a_handler_that_runs_in_a_thread_is_published_in_its_session(shop: EffectsShop) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    @shop.broker.subscriber("orders")
    def handle(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        return OutboxResponse(body, queue="returned", session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"returned": [b"1"]})


async def test_response_whose_session_has_ended_is_refused(shop: EffectsShop) -> None:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    @shop.broker.publisher("decorated")
    @shop.broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle_without_a_queue(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        return OutboxResponse(body, session=session)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(dead=1)
    (letter,) = await shop.sql(f"select error_message from {shop.dlq.name}")
    assert "queue or a topic of its own" in letter["error_message"]
    assert "queue=" in letter["error_message"]
