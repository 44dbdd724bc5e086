"""What a handler returns arrives everywhere that it goes to, in the transaction that the handler worked in."""

from collections.abc import AsyncIterator, Callable
from itertools import product
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Depends
from faststream.response import PublishCommand
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, NoRetry, OutboxResponse
from faststream_outbox.annotations import OutboxMessage, OutboxSession
from tests.broker.effects import EffectsShop
from tests.waiting import eventually

WAYS = list(product((False, True), repeat=5))
"""Is transactional; has a publisher; has a reply_to; is a plain def; sends no reply."""


def _opened(shop: EffectsShop) -> Any:
    """A dependency: a session whose transaction commits after the handler."""

    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    return Annotated[Any, Depends(opened)]


def _handler(shop: EffectsShop, queue: str, *, is_plain: bool, has_session: bool) -> Callable[..., Any]:
    def plain(body: int, session: Any) -> OutboxResponse:
        return OutboxResponse(body, queue=queue, session=session if has_session else None)

    async def coroutine(body: int, session: Any) -> OutboxResponse:
        return plain(body, session)

    handle = plain if is_plain else coroutine
    handle.__annotations__["session"] = _opened(shop)
    return handle


@pytest.mark.parametrize("has_session", [False, True])
async def test_response_goes_to_its_queue_its_publishers_and_who_asked(shop: EffectsShop, has_session: bool) -> None:
    expected: list[dict[str, list[bytes]]] = []
    for number, (transactional, has_publisher, has_reply, is_plain, no_reply) in enumerate(WAYS):
        handler: Any = shop.broker.subscriber(f"in-{number}", transactional=transactional, no_reply=no_reply)(
            _handler(shop, f"own-{number}", is_plain=is_plain, has_session=has_session)
        )
        queues = [f"own-{number}"]
        if has_publisher:
            shop.broker.publisher(f"decorated-{number}")(handler)
            queues.append(f"decorated-{number}")
        if has_reply and not no_reply:
            queues.append(f"answers-{number}")
        expected.append({queue: [b"1"] for queue in queues})
    await shop.broker.start()
    written: dict[str, list[bytes]] = {}
    # A few at a time: each may need two connections of the pool.
    for start in range(0, len(WAYS), 6):
        async with AsyncSession(shop.engine) as session, session.begin():
            for number in range(start, min(start + 6, len(WAYS))):
                reply_to = f"answers-{number}" if WAYS[number][2] else ""
                await shop.broker.publish(1, f"in-{number}", reply_to=reply_to, session=session)
                written |= expected[number]
        await shop.becomes(messages=written)
    await eventually(lambda: not shop.engine.pool.checkedout())  # type: ignore[attr-defined]


async def test_headers_are_passed_on_to_every_way(shop: EffectsShop) -> None:
    queues = []
    for number, has_session in enumerate((False, True)):
        handler: Any = shop.broker.subscriber(f"in-{number}", propagate_inbound_headers=True)(
            _handler(shop, f"own-{number}", is_plain=False, has_session=has_session)
        )
        shop.broker.publisher(f"decorated-{number}", headers={"source": "shop"})(handler)
        queues += [f"answers-{number}", f"decorated-{number}", f"own-{number}"]
    await shop.broker.start()
    async with AsyncSession(shop.engine) as session, session.begin():
        for number in range(2):
            await shop.broker.publish(
                1, f"in-{number}", reply_to=f"answers-{number}", headers={"tenant": "a"}, session=session
            )
    await shop.becomes(messages={queue: [b"1"] for queue in queues})
    rows = await shop.sql(f"select queue from {shop.outbox.name} where headers ->> 'tenant' = 'a' order by queue")
    assert sorted(row["queue"] for row in rows) == sorted(queues)


@pytest.mark.parametrize("has_session", [False, True])
async def test_response_of_a_transactional_handler_joins_its_transaction(shop: EffectsShop, has_session: bool) -> None:
    @shop.broker.publisher("decorated")
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        await shop.write(session, body)
        await session.flush()
        return OutboxResponse(body, queue="returned", session=session if has_session else None)

    await shop.deliver(1)
    await shop.becomes(effects=[1], messages={"returned": [b"1"], "decorated": [b"1"]})


async def test_response_with_the_session_of_a_dependency_commits_in_the_dependency(shop: EffectsShop) -> None:
    class Handler:
        async def __call__(self, body: int, session: Any) -> OutboxResponse:
            await shop.write(session, body)
            return OutboxResponse(body, queue="returned", session=session)

    Handler.__call__.__annotations__["session"] = _opened(shop)
    shop.broker.subscriber("orders")(Handler())
    await shop.deliver(1)
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

    @shop.broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=1000))
    async def handle(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        await shop.write(session, body)
        return OutboxResponse(body, queue="returned", session=session)

    await shop.deliver(1)
    await shop.failed()


async def test_response_without_a_place_of_its_own_takes_no_session(shop: EffectsShop) -> None:
    async def handle_without_a_queue(body: int, session: Any) -> OutboxResponse:
        return OutboxResponse(body, session=session)

    handle_without_a_queue.__annotations__["session"] = _opened(shop)
    subscriber = shop.broker.subscriber("orders", retry_strategy=NoRetry())
    shop.broker.publisher("decorated")(subscriber(handle_without_a_queue))
    await shop.deliver(1)
    await shop.becomes(dead=1)
    (letter,) = await shop.sql(f"select error_message from {shop.dlq.name}")
    assert "queue or a topic of its own" in letter["error_message"]
    assert "queue=" in letter["error_message"]


class RefusesFirst(BaseMiddleware):
    """Does not let the first letter through."""

    refused: list[str] = []

    async def publish_scope(self, call_next: Callable[..., Any], cmd: PublishCommand) -> Any:
        if cmd.destination == "letters" and not self.refused:
            self.refused.append(cmd.destination)
            raise ConnectionError("not this time")
        return await call_next(cmd)


@pytest.mark.parametrize("way", ["result", "response", "response with a session"])
async def test_message_that_its_handler_acked_comes_again_when_its_result_could_not_be_published(
    shop: EffectsShop, way: str
) -> None:
    RefusesFirst.refused.clear()
    shop.broker.add_middleware(RefusesFirst)
    async with AsyncSession(shop.engine) as session:

        async def handle(number: int, msg: OutboxMessage) -> Any:
            await msg.ack()
            if way == "result":
                return number
            return OutboxResponse(number, queue="letters", session=None if way == "response" else session)

        subscriber = shop.broker.subscriber(
            "orders", retry_strategy=ConstantRetry(delay_seconds=0.01), ack_policy=AckPolicy.MANUAL
        )
        decorated = subscriber(handle)
        if way == "result":
            shop.broker.publisher("letters")(decorated)
        await shop.deliver(1)
        await shop.becomes(messages={} if way == "response with a session" else {"letters": [b"1"]})
        await shop.broker.stop()
        await session.commit()
    await shop.becomes(messages={"letters": [b"1"]})
    assert RefusesFirst.refused == ["letters"]
