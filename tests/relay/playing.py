"""A transport that plays a broker as a test says, and what it has had."""

import asyncio
from collections.abc import Callable, Sequence

from faststream_outbox.relay import Refused, RelayMessage, Result, Sent, Unavailable

DOWN = ConnectionError("nobody there")
TOO_LARGE = ValueError("message too large")


class Played:
    """Confirms what no rule says otherwise of."""

    name = "played"

    def __init__(self) -> None:
        self.taken: list[RelayMessage] = []
        self.tries: list[list[RelayMessage]] = []
        self.is_down = False
        self.starts = self.stops = 0
        self.fails_to_start = 0
        self.rule: Callable[[RelayMessage], Result] = lambda message: Sent()
        self.gate: asyncio.Event | None = None
        """Where answers wait, if a test wants that."""

    async def start(self) -> None:
        self.starts += 1
        if self.fails_to_start:
            self.fails_to_start -= 1
            raise DOWN

    async def stop(self) -> None:
        self.stops += 1

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        self.tries.append(list(messages))
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            return [Unavailable(DOWN)] * len(messages)
        results = [self.rule(message) for message in messages]
        self.taken += [message for message, result in zip(messages, results, strict=True) if isinstance(result, Sent)]
        return results

    @property
    def bodies(self) -> list[int]:
        """What it has had, in order."""
        return [int(message.body) for message in self.taken]

    def of_key(self, key: str) -> list[int]:
        """The same of a key."""
        return [int(message.body) for message in self.taken if message.key == key]


def refuse(*numbers: int, again: bool = False) -> Callable[[RelayMessage], Result]:
    """Refuses these, and confirms the rest."""

    def rule(message: RelayMessage) -> Result:
        return Refused(ValueError(f"{TOO_LARGE}: {message.body!r}"), again) if int(message.body) in numbers else Sent()

    return rule
