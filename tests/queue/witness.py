"""Hears the events of clients and waits for them."""

import asyncio
from typing import Any, TypeVar

import pytest

from faststream_outbox.events import Event
from tests.waiting import PATIENCE_SECONDS

Kind = TypeVar("Kind")


class Witness:
    """Every event of the clients that it was subscribed to, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._heard = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._heard.set()

    def of(self, *kinds: type[Kind]) -> list[Kind]:
        """The events of these types so far."""
        return [event for event in self.events if isinstance(event, kinds)]

    async def wait(self, kind: type[Kind], count: int = 1, timeout: float = PATIENCE_SECONDS, **fields: Any) -> Kind:
        """The event of this type and these fields that is the `count`th, once it is there."""
        __tracebackhide__ = True
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._heard.clear()
                    found = [event for event in self.of(kind) if _has(event, fields)]
                    if len(found) >= count:
                        return found[count - 1]
                    await self._heard.wait()
        except TimeoutError:
            pytest.fail(f"no {kind.__name__} number {count} {fields} in {timeout} s; heard: {self.events[-30:]}")


def _has(event: object, fields: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in fields.items())
