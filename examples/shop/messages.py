"""What the shop's messages say. The queues, and the topic for everybody else, are named beside them."""

from pydantic import BaseModel

ORDERS = "orders"
LETTERS = "letters"
REMINDERS = "reminders"
EVENTS = "shop.orders"
STREAM = "shop"


class OrderPlaced(BaseModel):
    """In `orders`: somebody has to write a receipt. In the topic `shop.orders`: an event, for whoever cares."""

    order_id: int


class LetterWanted(BaseModel):
    """In `letters` and, for later, in `reminders`: somebody has to write to the customer."""

    order_id: int
    kind: str
