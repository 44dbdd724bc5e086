"""One module of handlers and routes, to be served in either of the ways that FastAPI and FastStream go together."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.broker import OutboxBroker as Broker
from faststream_outbox.broker import OutboxResponse
from faststream_outbox.broker import OutboxRouter as HandlerRouter
from faststream_outbox.fastapi import (
    Context,
    ContextRepo,
    Logger,
    OutboxBatchMessage,
    OutboxBroker,
    OutboxClient,
    OutboxMessage,
    OutboxProducer,
    OutboxSession,
)

orders = Table("orders", MetaData(), Column("id", BigInteger, primary_key=True), Column("item", Text))


class Order(BaseModel):
    item: str


@dataclass
class Shop:
    """The handlers, and what they saw."""

    engine: AsyncEngine
    seen: list[dict[str, Any]] = field(default_factory=list)
    failures_left: int = 0

    async def session(self) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(self.engine) as session, session.begin():
            yield session

    def routes(self, broker: Broker) -> APIRouter:
        api = APIRouter()

        @api.post("/orders")
        async def place(
            order: Order, session: Annotated[AsyncSession, Depends(self.session)], is_refused: bool = False
        ) -> dict[str, Any]:
            await session.execute(insert(orders).values(item=order.item))
            number = await broker.publish(order, queue="mixed", session=session)
            if is_refused:
                raise HTTPException(409)
            return {"message": number}

        return api

    def handlers(self) -> HandlerRouter:
        router = HandlerRouter()

        @router.subscriber("mixed")
        async def mixed(
            order: Order,
            message: OutboxMessage,
            broker: OutboxBroker,
            client: OutboxClient,
            producer: OutboxProducer,
            repository: ContextRepo,
            logger: Logger,
            queue: Annotated[str, Context("message.raw_message.queue")],
            session: Annotated[AsyncSession, Depends(self.session)],
        ) -> None:
            self.seen.append(locals() | {"has_transaction": session.in_transaction()})

        @router.subscriber("transactional", transactional=True, retry_strategy=ConstantRetry(delay_seconds=0.01))
        async def transactional(order: Order, session: OutboxSession, broker: OutboxBroker) -> None:
            await session.execute(insert(orders).values(item=order.item))
            await broker.publish(order, queue="mixed")
            if self.failures_left:
                self.failures_left -= 1
                raise ValueError("not this time")

        @router.subscriber("without-transaction", retry_strategy=NoRetry())
        async def without_transaction(order: Order, session: OutboxSession) -> None:
            self.seen.append({"session": session})

        @router.subscriber("batches", batch=True, batch_size=3, batch_wait=5.0)
        async def batches(items: list[Order], message: OutboxBatchMessage) -> None:
            self.seen.append({"items": items, "messages": message.messages})

        @router.subscriber("responding")
        async def responding(order: Order, session: Annotated[AsyncSession, Depends(self.session)]) -> OutboxResponse:
            await session.execute(insert(orders).values(item=order.item))
            return OutboxResponse(order, queue="mixed", session=session)

        return router
