"""The inbox around handlers of a FastStream broker: what is committed, skipped, acknowledged and published, and when.

NATS is played by FastStream's test broker here; the messages, middlewares and acknowledgements are the real ones.
"""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from faststream.exceptions import AckMessage, IncorrectState, NackMessage, RejectMessage
from faststream.nats import JStream, NatsBroker, NatsMessage, NatsRouter, PullSub, TestNatsBroker
from faststream.nats.message import NatsMessage as Message
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import Inbox, OutboxBroker, events, make_outbox_table
from faststream_outbox._internal.inbox import middleware as trouble
from faststream_outbox.annotations import InboxSession
from faststream_outbox.errors import InvalidOption, OutboxWarning, SessionRequired, TransactionEnded
from tests.connections.troubles import TROUBLES
from tests.inbox.conftest import Scene
from tests.tables import existing

ID = {"message_id": "m1"}
LEAVES_OPEN = [AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "PAUSE_SECONDS", 0.0)


class Acks:
    """What became of messages at their broker, and what was committed by then."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        for way in ("ack", "nack", "reject"):
            monkeypatch.setattr(Message, way, self._of(scene, way))

    def _of(self, scene: Scene, way: str) -> Callable[..., Any]:
        async def note(message: Message, *args: Any, **kwargs: Any) -> None:
            self.seen.append((way, len(await scene.receipts())))

        return note


@pytest.fixture
def acks(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Acks:
    return Acks(scene, monkeypatch)


Publish = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def handling(
    scene: Scene, bill: Callable[..., Any], *, inbox: Inbox | None = None, **options: Any
) -> AsyncIterator[Publish]:
    """A broker whose handler of orders is behind an inbox; gives what publishes an order there."""
    broker = NatsBroker(middlewares=[(inbox or scene.inbox()).middleware], **options)
    broker.subscriber("orders")(bill)
    async with TestNatsBroker(broker):
        yield partial(broker.publish, "chair", "orders", headers=ID)


@pytest.mark.parametrize("policy", LEAVES_OPEN)
async def test_message_takes_effect_once_and_is_acknowledged_after_the_commit(
    scene: Scene, acks: Acks, policy: AckPolicy
) -> None:
    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        assert await scene.receipts() == []

    async with handling(scene, bill, ack_policy=policy) as publish:
        for _ in range(3):
            await publish()
    assert await scene.written() == ["chair"]
    assert await scene.receipts() == [("billing", "orders", "m1")]
    assert acks.seen == 3 * [("ack", 1)]
    assert scene.duplicates == 2


def raising(error: Exception) -> Callable[..., Any]:
    async def end(message: NatsMessage, session: AsyncSession) -> None:
        raise error

    return end


async def ack_and_fail(message: NatsMessage, session: AsyncSession) -> None:
    await message.ack()
    raise ValueError("no")


FAILS = raising(ValueError("no"))
MANUAL = AckPolicy.MANUAL
REJECTED = [("reject", 0)]


@pytest.mark.parametrize(
    ("policy", "end", "error", "count", "seen"),
    [
        pytest.param(AckPolicy.ACK, FAILS, ValueError, 0, [("ack", 0)], id="fails, ack"),
        pytest.param(AckPolicy.REJECT_ON_ERROR, FAILS, ValueError, 0, REJECTED, id="fails, reject"),
        pytest.param(AckPolicy.NACK_ON_ERROR, FAILS, ValueError, 0, [("nack", 0)], id="fails, nack"),
        pytest.param(None, raising(AckMessage()), None, 1, [("ack", 1)], id="raises ack"),
        pytest.param(None, raising(NackMessage()), None, 0, [("nack", 0)], id="raises nack"),
        pytest.param(None, raising(RejectMessage()), None, 0, REJECTED, id="raises reject"),
        pytest.param(MANUAL, lambda message, _: message.nack(), None, 0, [("nack", 0)], id="nack by hand"),
        pytest.param(MANUAL, ack_and_fail, ValueError, 0, [], id="fails after an ack by hand"),
        pytest.param(None, lambda _, session: session.commit(), TransactionEnded, 0, REJECTED, id="commits by itself"),
    ],
)
async def test_end_of_a_handler_decides_what_is_kept_and_acknowledged(
    scene: Scene,
    acks: Acks,
    policy: AckPolicy | None,
    end: Callable[..., Any],
    error: type[Exception] | None,
    count: int,
    seen: list[Any],
) -> None:
    async def bill(order: str, session: InboxSession, message: NatsMessage) -> None:
        await scene.write(session, order)
        await end(message, session)

    async with handling(scene, bill, **({"ack_policy": policy} if policy else {})) as publish:
        with pytest.raises(error) if error else nullcontext():
            await publish()
    assert (len(await scene.written()), len(await scene.receipts()), acks.seen) == (count, count, seen)


@pytest.mark.parametrize("policy", [AckPolicy.MANUAL, AckPolicy.NACK_ON_ERROR])
async def test_ack_by_hand_waits_for_the_commit(scene: Scene, acks: Acks, policy: AckPolicy) -> None:
    async def bill(order: str, session: InboxSession, message: NatsMessage) -> None:
        await message.ack()
        await scene.write(session, order)
        assert acks.seen == []

    async with handling(scene, bill, ack_policy=policy) as publish:
        await publish()
        assert acks.seen[0] == ("ack", 1)
        acks.seen.clear()
        await publish()
    assert acks.seen == [("ack", 1)]
    assert await scene.written() == ["chair"]


@pytest.mark.parametrize("name", TROUBLES)
async def test_a_handler_that_meets_trouble_of_the_database_brings_the_message_again(
    scene: Scene, acks: Acks, database_url: URL, name: str
) -> None:
    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        await TROUBLES[name](database_url)

    async with handling(scene, bill, ack_policy=AckPolicy.REJECT_ON_ERROR) as publish:
        await publish()
    assert (await scene.written(), acks.seen) == ([], [("nack", 0)])


@pytest.mark.parametrize("policy", [*LEAVES_OPEN, MANUAL])
async def test_trouble_of_the_database_brings_the_message_again_under_every_policy(
    scene: Scene, acks: Acks, policy: AckPolicy
) -> None:
    kills = [True]

    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        if kills and kills.pop():
            pid = await session.scalar(text("select pg_backend_pid()"))
            async with scene.engine.connect() as other:
                await other.execute(text("select pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    async with handling(scene, bill, ack_policy=policy) as publish:
        with pytest.raises(NackMessage) if policy is MANUAL else nullcontext():
            await publish()
        assert acks.seen == [("nack", 0)]
        assert scene.count(events.StatementFailed) == 1
        await publish()
    assert await scene.written() == ["chair"]


async def test_message_that_is_being_handled_goes_back(scene: Scene, acks: Acks) -> None:
    inbox = scene.inbox(on_concurrent="retry")
    async with handling(scene, _nothing, inbox=inbox) as publish:
        async with inbox.receive("m1", source="orders"):
            await publish()
        assert acks.seen == [("nack", 0)]
        await publish()
    assert acks.seen == [("nack", 0), ("ack", 1)]


async def test_duplicate_publishes_nothing(scene: Scene) -> None:
    router = NatsRouter(middlewares=[scene.inbox().middleware])
    billed: list[str] = []

    @router.subscriber("orders")
    @router.publisher("billed")
    async def bill(order: str) -> str:
        return order

    broker = NatsBroker(routers=[router])

    @broker.subscriber("billed", no_reply=True)
    async def hear(order: str) -> None:
        billed.append(order)

    async with TestNatsBroker(broker):
        for _ in range(2):
            await broker.publish("chair", "orders", headers=ID)
    assert billed == ["chair"]


async def test_failing_publisher_undoes_the_effects(scene: Scene, acks: Acks) -> None:
    broker, other = NatsBroker(middlewares=[scene.inbox().middleware]), NatsBroker()
    # Its publisher refuses: the other broker was never started.

    @broker.subscriber("orders", no_reply=True)
    @other.publisher("billed")
    async def bill(order: str, session: InboxSession) -> str:
        await scene.write(session, order)
        return order

    async with TestNatsBroker(broker):
        with pytest.raises(IncorrectState):
            await broker.publish("chair", "orders", headers=ID)
    assert (await scene.written(), acks.seen) == ([], [("reject", 0)])


async def test_outbox_is_part_of_the_commit(scene: Scene, engine: AsyncEngine, builder: Engine) -> None:
    with existing(make_outbox_table(scene.table.metadata), builder) as table:
        outbox = OutboxBroker(engine, outbox_table=table, dlq_table=None)
        broker = NatsBroker(middlewares=[scene.inbox().middleware])
        fails = [True]

        @broker.subscriber("orders", no_reply=True)
        @outbox.publisher("returned")
        async def bill(order: str, session: InboxSession) -> str:
            await outbox.publish(order, queue="published", session=session)
            return order

        class FailsLate(BaseMiddleware):
            async def after_processed(self, *_: Any) -> bool | None:
                if fails and fails.pop():
                    raise ValueError("after all publishers")
                return False

        broker.add_middleware(FailsLate)
        async with TestNatsBroker(broker):
            with pytest.raises(ValueError, match="after all publishers"):
                await broker.publish("chair", "orders", headers=ID)
            async with engine.connect() as connection:
                assert await outbox.fetch_unprocessed(session=connection) == []
            await broker.publish("chair", "orders", headers=ID)
            await broker.publish("chair", "orders", headers=ID)
        async with engine.connect() as connection:
            found = [row.queue for row in await outbox.fetch_unprocessed(session=connection)]
        assert sorted(found) == ["published", "returned"]


async def test_router_and_broker_with_the_same_inbox_receive_once(scene: Scene) -> None:
    inbox = scene.inbox()
    router = NatsRouter(prefix="shop.", middlewares=[inbox.middleware])

    @router.subscriber("orders")
    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)

    broker = NatsBroker(middlewares=[inbox.middleware], routers=[router])
    async with TestNatsBroker(broker):
        for _ in range(2):
            await broker.publish("chair", "shop.orders", headers=ID)
    assert await scene.written() == ["chair"]
    assert await scene.receipts() == [("billing", "shop.orders", "m1")]


async def test_session_without_an_inbox_says_what_is_missing() -> None:
    broker = NatsBroker()

    @broker.subscriber("orders")
    async def bill(order: str, session: InboxSession) -> None: ...

    async with TestNatsBroker(broker):
        with pytest.raises(SessionRequired, match=r"middlewares=\[inbox\.middleware\]"):
            await broker.publish("chair", "orders", headers=ID)


async def test_answers_to_requests_of_a_handler_are_not_received(scene: Scene) -> None:
    broker = NatsBroker(middlewares=[scene.inbox().middleware])

    @broker.subscriber("prices")
    async def price(item: str) -> int:
        return 7

    @broker.subscriber("orders")
    async def bill(order: str, session: InboxSession) -> None:
        answer = await broker.request(order, "prices", timeout=30.0, headers={"message_id": "r1"})
        await scene.write(session, f"{order} {await answer.decode()}")

    async with TestNatsBroker(broker):
        await broker.publish("chair", "orders", headers=ID)
    assert await scene.written() == ["chair 7"]
    assert [row[1:] for row in await scene.receipts()] == [("orders", "m1"), ("prices", "r1")]


async def test_subscriber_that_acknowledges_first_is_refused_when_it_is_checked_and_warned_about_once(
    scene: Scene,
) -> None:
    inbox = scene.inbox()
    broker = NatsBroker(middlewares=[inbox.middleware])
    broker.subscriber("orders", stream=JStream("shop"), ack_policy=AckPolicy.ACK_FIRST)(_nothing)
    with pytest.raises(InvalidOption, match="NACK_ON_ERROR"):
        inbox.check(broker)
    async with TestNatsBroker(broker):
        with pytest.warns(OutboxWarning, match="is lost when"):
            await broker.publish("chair", "orders", headers=ID)
        with warnings.catch_warnings():
            warnings.simplefilter("error", OutboxWarning)
            await broker.publish("chair", "orders", headers={"message_id": "m2"})


async def test_batches_are_refused(scene: Scene) -> None:
    inbox = scene.inbox()
    broker = NatsBroker(middlewares=[inbox.middleware])
    broker.subscriber("orders", stream=JStream("shop"), pull_sub=PullSub(batch=True))(_nothing_of_many)
    with pytest.raises(InvalidOption, match="batches"):
        inbox.check(broker)
    async with TestNatsBroker(broker):
        with pytest.raises(InvalidOption, match=r"inbox\.receive"):
            await broker.publish("chair", "orders", headers=ID)


async def test_two_handlers_of_one_source_need_two_consumers(scene: Scene) -> None:
    """For the second one, each message would be a duplicate."""
    inbox = scene.inbox()
    broker = NatsBroker(middlewares=[inbox.middleware])
    broker.subscriber("orders")(_nothing)
    broker.subscriber("orders")(_nothing_too)
    with pytest.raises(InvalidOption, match="consumer="):
        inbox.check(broker)
    async with TestNatsBroker(broker):
        with pytest.raises(InvalidOption, match="consumer="):
            await broker.publish("chair", "orders", headers=ID)


async def _nothing(order: str) -> None: ...


async def _nothing_too(order: str) -> None: ...


async def _nothing_of_many(orders: list[str]) -> None: ...
