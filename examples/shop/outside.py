"""What stands for the world outside: a card company, a program that lays out receipts, a register of invoices.

The first two fail in ways that a customer can ask for, so that there is something to see.
"""

import asyncio

DECLINED_CARD = "0000"
FLAKY_ITEM = "a flaky lamp"
CURSED_ITEM = "a cursed mirror"
SECONDS_TO_LAY_OUT = 0.1
SECONDS_TO_REGISTER = 0.02


class CardDeclined(Exception):
    """The card company says no."""


async def charge(card: str, cents: int) -> None:
    """Take the money, or raise `CardDeclined`."""
    if card == DECLINED_CARD:
        message = f"the card company does not pay {cents} cents"
        raise CardDeclined(message)


async def lay_out(item: str, cents: int, *, attempt: int) -> str:
    """The words of a receipt. A flaky item fails at the first attempt, a cursed one at every attempt."""
    await asyncio.sleep(SECONDS_TO_LAY_OUT)
    if item == CURSED_ITEM:
        message = f"{item} has no letters that can be printed"
        raise ValueError(message)
    if item == FLAKY_ITEM and attempt == 1:
        message = "the font server does not answer"
        raise ConnectionError(message)
    return f"{item}: {cents / 100:.2f}. Thank you."


async def register(order_id: int) -> None:
    """Tell the register that there will be an invoice."""
    await asyncio.sleep(SECONDS_TO_REGISTER)
