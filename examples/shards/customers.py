"""The customers: each places its orders one after the other, and asks again until it was told that one is placed."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from sqlalchemy.exc import DBAPIError

from examples.shards.app import place_order
from examples.shards.shards import Shard, home_of

CUSTOMERS = 12
ORDERS_EACH = 30
SECONDS_TO_THINK = 0.02
SECONDS_TO_ASK_AGAIN = 0.2


class Customers:
    """Who they are, and what they were told."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self.home = {name: home_of(name, shards).name for name in (f"customer {n}" for n in range(CUSTOMERS))}
        self.placed: Counter[str] = Counter()
        """Orders that customers were told of, by shard."""
        self.refused: Counter[str] = Counter()
        """Tries that ended in an error, by shard."""

    def wanted(self, shard: Shard) -> int:
        """Orders that will be placed in this shard."""
        return ORDERS_EACH * sum(home == shard.name for home in self.home.values())

    async def place_orders(self) -> None:
        """All customers at the same time."""
        async with asyncio.TaskGroup() as tasks:
            for customer in self.home:
                tasks.create_task(self._order(customer))

    async def _order(self, customer: str) -> None:
        home = self.home[customer]
        for number in range(ORDERS_EACH):
            while not await self._try(customer, number):
                self.refused[home] += 1
                await asyncio.sleep(SECONDS_TO_ASK_AGAIN)
            self.placed[home] += 1
            await asyncio.sleep(SECONDS_TO_THINK)

    async def _try(self, customer: str, number: int) -> bool:
        try:
            await place_order(self._shards, customer, number)
        except (DBAPIError, OSError):
            return False
        return True
