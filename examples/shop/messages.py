"""What the shop's messages say. The queues are named beside them."""

from pydantic import BaseModel

ORDERS = "orders"
LETTERS = "letters"
REMINDERS = "reminders"


class OrderPlaced(BaseModel):
    """In `orders`: somebody has to write a receipt."""

    order_id: int


class LetterWanted(BaseModel):
    """In `letters` and, for later, in `reminders`: somebody has to write to the customer."""

    order_id: int
    kind: str
