"""The shop's HTTP application: takes orders. It publishes and does not consume.

`uvicorn examples.shop.app:app`. An order and its messages are one transaction: after the answer 201 all
of them exist, after any other answer none of them does.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import select

from examples.shop.broker import broker, engine, new_session
from examples.shop.messages import EVENTS, ORDERS, REMINDERS, LetterWanted, OrderPlaced
from examples.shop.models import Letter, Order, Receipt
from examples.shop.outside import CardDeclined, charge


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Connect without consuming: that is what `async with broker` does."""
    async with broker:
        yield
    # The engine is the application's: the broker does not close it.
    await engine.dispose()


app = FastAPI(title="A shop with an outbox", lifespan=lifespan)


class NewOrder(BaseModel):
    """What a customer sends."""

    customer: str
    item: str
    cents: int
    card: str = "4711"
    remind_in_seconds: float | None = None


class OrderView(BaseModel):
    """What a customer sees."""

    id: int
    customer: str
    item: str
    cents: int
    receipt: str | None = None
    letters: list[str] = []


@app.post("/orders", status_code=201)
async def place_order(wanted: NewOrder) -> OrderView:
    """Save the order and publish what is to be done about it, in one transaction."""
    # Not a dependency with `yield`: FastAPI ends those after the answer was sent, and the commit with them.
    try:
        async with new_session.begin() as session:
            order = Order(customer=wanted.customer, item=wanted.item, cents=wanted.cents)
            session.add(order)
            await session.flush()
            placed = OrderPlaced(order_id=order.id)
            await broker.publish(placed, ORDERS, session=session)
            await broker.publish(placed, topic=EVENTS, key=order.customer, session=session)
            if wanted.remind_in_seconds is not None:
                await broker.publish(
                    LetterWanted(order_id=order.id, kind="reminder"),
                    REMINDERS,
                    session=session,
                    activate_in=timedelta(seconds=wanted.remind_in_seconds),
                    timer_id=f"order-{order.id}",
                )
            await charge(wanted.card, wanted.cents)
    except CardDeclined as error:
        # Rolled back: neither the order nor its messages were ever there.
        raise HTTPException(402, str(error)) from error
    return OrderView(id=order.id, customer=order.customer, item=order.item, cents=order.cents)


@app.get("/orders/{order_id}")
async def show_order(order_id: int) -> OrderView:
    """The order, its receipt once a worker has written it, and the letters that were sent."""
    async with new_session() as session:
        order = await session.get(Order, order_id)
        if order is None:
            raise HTTPException(404, f"there is no order {order_id}")
        receipt = await session.scalar(select(Receipt.words).where(Receipt.order_id == order_id))
        letters = await session.scalars(select(Letter.kind).where(Letter.order_id == order_id).order_by(Letter.id))
        return OrderView(
            id=order.id,
            customer=order.customer,
            item=order.item,
            cents=order.cents,
            receipt=receipt,
            letters=list(letters),
        )


@app.get("/health")
async def health() -> dict[str, str]:
    """For the load balancer."""
    if not await broker.ping(timeout=2.0):
        raise HTTPException(503, "the database does not answer")
    return {"database": "answers"}
