"""The shop's customers: they place orders over HTTP, several at a time, and count what they are told."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass

from examples.shop.outside import CURSED_ITEM, DECLINED_CARD, FLAKY_ITEM

AT_A_TIME = 4
ANSWER_SECONDS = 10.0
CREATED, DECLINED = 201, 402


@dataclass(frozen=True, slots=True)
class Plan:
    """What the customers set out to do."""

    attempts: int = 300
    declined_every: int = 6
    flaky_every: int = 50
    cursed_number: int = 100
    reminded: tuple[int, ...] = (1, 2, 3)
    remind_in_seconds: float = 3.0
    cursed: int = 1

    @property
    def committed(self) -> int:
        """Orders that go through."""
        return self.attempts - self.attempts // self.declined_every

    def is_declined(self, number: int) -> bool:
        """Whether this one's card is no good."""
        return number % self.declined_every == 0

    def is_flaky(self, number: int) -> bool:
        """Whether this one's receipt fails at first."""
        return number % self.flaky_every == 1

    @property
    def flaky(self) -> int:
        """Orders that go through and whose receipts fail at first."""
        numbers = range(1, self.attempts + 1)
        return sum(self.is_flaky(number) and not self.is_declined(number) for number in numbers)

    def order(self, number: int) -> dict[str, object]:
        """The body of the request."""
        item = "a chair"
        if number == self.cursed_number:
            item = CURSED_ITEM
        elif self.is_flaky(number):
            item = FLAKY_ITEM
        return {
            "customer": f"customer {number % 7}",
            "item": item,
            "cents": 100 + number,
            "card": DECLINED_CARD if self.is_declined(number) else "4711",
            "remind_in_seconds": self.remind_in_seconds if number in self.reminded else None,
        }


PLAN = Plan()


class Customers:
    """Place the orders of a plan."""

    def __init__(self, url: str, plan: Plan = PLAN) -> None:
        self.url = url
        self.plan = plan
        self.committed = 0
        self.rolled_back = 0

    async def place_orders(self) -> None:
        """Place them all, a few at a time."""
        numbers = iter(range(1, self.plan.attempts + 1))

        async def customer() -> None:
            for number in numbers:
                await self.place_order(number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_A_TIME):
                tasks.create_task(customer())

    async def place_order(self, number: int) -> None:
        """Place one, and believe the answer."""
        status = await asyncio.to_thread(post, f"{self.url}/orders", self.plan.order(number))
        if status == CREATED:
            self.committed += 1
        elif status == DECLINED:
            self.rolled_back += 1
        else:
            message = f"order {number} was answered with {status}"
            raise RuntimeError(message)


def post(url: str, body: dict[str, object]) -> int:
    """Send JSON; the status of the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return status_of(request)


def status_of(request: urllib.request.Request) -> int:
    """The status of the answer, good or bad."""
    try:
        with _opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


async def is_up(url: str) -> bool:
    """Whether the shop answers and is well."""
    try:
        return await asyncio.to_thread(status_of, urllib.request.Request(f"{url}/health")) == 200
    except OSError:
        return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


# The shop is on this machine: whatever proxy the environment names is not on the way.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
