"""What a handler returns arrives everywhere that it goes to, whatever kind of handler returns it."""

from collections.abc import AsyncIterator, Callable
from itertools import product
from typing import Annotated, Any

import pytest
from faststream import Depends
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxResponse
from tests.broker.effects import EffectsShop
from tests.waiting import eventually

WAYS = list(product((False, True), (False, True), (False, True), (False, True), (False, True)))
"""Is transactional; has a publisher; has a reply_to; is a plain def; sends no reply."""


def _handler(shop: EffectsShop, queue: str, *, is_plain: bool, has_session: bool) -> Callable[..., Any]:
    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(shop.engine) as session, session.begin():
            yield session

    def plain(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        return OutboxResponse(body, queue=queue, session=session if has_session else None)

    async def coroutine(body: int, session: Annotated[Any, Depends(opened)]) -> OutboxResponse:
        return OutboxResponse(body, queue=queue, session=session if has_session else None)

    return plain if is_plain else coroutine


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
