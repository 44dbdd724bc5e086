"""A line: the batch handler between an engine's worker and one transport.

Gets claims or deliveries, sends their messages in waves, and answers with one outcome for each: done after the
broker's confirm and not before, dead where the broker refuses the message itself. While the broker is down, batches
wait here, and the engine renews their leases; nothing is counted. `Waves` decides, without any I/O, which messages of a
batch may be sent at the same time: of each key one at a time, each after the confirm of the one before; what has no key
all at once. A key whose message was not taken stops there, and the rest of the batch goes on. Called by the engines,
made by `relay`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from time import perf_counter
from typing import Any, assert_never

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.outcomes.outcome import DONE, REJECTED, RELEASE, Dead, Outcome, Retry
from faststream_outbox._internal.queue.options import OnDead
from faststream_outbox._internal.relay.circuit import Circuit
from faststream_outbox._internal.relay.gate import HOLD_SECONDS, PATIENCE_SECONDS, PAUSE_SECONDS
from faststream_outbox._internal.relay.transport import (
    Received,
    Refused,
    RelayMessage,
    Result,
    Sent,
    Transport,
    Unavailable,
    received,
)
from faststream_outbox._internal.service import until
from faststream_outbox.errors import BrokerUnavailable, WrongResults

Lane = deque[int]


class Waves:
    """A batch on its way, by the places of its messages; `whole` for a transport that keeps the order by itself."""

    def __init__(self, keys: Sequence[Hashable | None], *, whole: bool = False) -> None:
        lanes: dict[Hashable, Lane] = {}
        self._lane_of: list[Lane] = []
        for place, key in enumerate(keys):
            # What has no key has a lane of its own; no key is an int.
            lane = lanes.setdefault(place if key is None else (key,), deque())
            lane.append(place)
            self._lane_of.append(lane)
        self._live: list[Lane] = list(lanes.values())
        self._held: dict[int, Lane] = {}
        self._whole = whole

    def next(self) -> list[int]:
        """The places to send now, in the order of the batch; empty when there are none."""
        wave: list[int] = []
        for lane in self._live:
            if self._whole:
                wave.extend(lane)
                lane.clear()
            else:
                wave.append(lane.popleft())
        self._live = [lane for lane in self._live if lane]
        wave.sort()
        return wave

    def hold(self, places: Iterable[int]) -> None:
        """These were not taken: their keys stop in front of them, until `resume`."""
        for place in sorted(places, reverse=True):
            lane = self._lane_of[place]
            lane.appendleft(place)
            self._held[id(lane)] = lane
        self._live = [lane for lane in self._live if id(lane) not in self._held]

    def resume(self) -> None:
        """Let the keys go on that were stopped by `hold`."""
        self._live += self._held.values()
        self._held = {}

    def end(self, place: int) -> None:
        """This one is dealt with, and nothing of its key may follow in this batch."""
        self._lane_of[place].clear()
        self._live = [lane for lane in self._live if lane]
        self._held = {number: lane for number, lane in self._held.items() if lane}


PUT_OFF_SECONDS = 1.0
"""When messages come again that a broker did not take while it took others."""

Wrap = Callable[[RelayMessage], RelayMessage]


class Line:
    """Sends what one source holds through one transport."""

    def __init__(
        self,
        relay: str,
        transport: Transport,
        *,
        group: str | None = None,
        ordered: bool = True,
        on_dead: OnDead = "continue",
        wrap: Wrap | None = None,
    ) -> None:
        self.relay = relay
        self.transport: Any = transport
        self.name = str(getattr(transport, "name", type(transport).__name__))
        self.circuit = Circuit(self._down, self._up)
        self.in_flight = 0
        self._group = group
        self._ordered = ordered
        self._on_dead = on_dead
        self._wrap = wrap
        self._events: Events | None = None

    def begin(self, emitter: Events) -> None:
        """Get ready to handle, and report what happens there."""
        self._events = emitter
        self.in_flight = 0
        self.circuit.begin()

    @property
    def is_open(self) -> bool:
        """Whether what the transport belongs to runs."""
        return bool(getattr(self.transport, "is_open", True))

    async def opened(self, timeout: float) -> bool:
        """Wait for so long until it does, unless the relay stops."""
        return await until(lambda: self.is_open, timeout, lambda: self.circuit.is_over, PAUSE_SECONDS)

    async def handle(self, claims: Sequence[Received]) -> list[Outcome]:
        """Send the messages of a batch; what became of each."""
        messages = [received(claim, self._group) for claim in claims]
        results: list[Result | None] = [None] * len(messages)
        self.in_flight += len(messages)
        began = perf_counter()
        try:
            await self._send_all(messages, results)
        except asyncio.CancelledError:
            if not self.circuit.is_over:
                raise
            # The time to stop is over: what was confirmed must not come again.
        finally:
            self.in_flight -= len(messages)
        self._tell(results, perf_counter() - began)
        return self._outcomes(results)

    async def _send_all(self, messages: list[RelayMessage], results: list[Result | None]) -> None:
        """Send wave after wave; what is left without a result, or `Unavailable`, was not taken."""
        keys = [message.order_key if self._ordered else None for message in messages]
        waves = Waves(keys, whole=bool(getattr(self.transport, "keeps_order", False)))
        if self._wrap is not None:
            messages = [self._wrap(message) for message in messages]
        has_answers = False
        while wave := waves.next():
            if not await self._may_send():
                return
            found = await self._send([messages[place] for place in wave])
            missed: list[int] = []
            for place, result in zip(wave, found, strict=True):
                results[place] = result
                if isinstance(result, Unavailable):
                    missed.append(place)
                elif isinstance(result, Refused) and (result.again or self._on_dead == "block"):
                    waves.end(place)
            waves.hold(missed)
            if len(missed) < len(wave):
                has_answers = True
                self.circuit.answered()
                continue
            failure = found[0]
            if self.is_open and isinstance(failure, Unavailable):
                self.circuit.failed(failure.error)
            else:
                self.circuit.left()
            if has_answers:
                # What was taken is settled now, and not when the broker is back.
                return
            waves.resume()

    async def _may_send(self) -> bool:
        """Wait until the transport can be used; False if the messages are to be given back."""
        if not self.is_open and not await self.opened(HOLD_SECONDS):
            return False
        return await self.circuit.enter()

    async def _send(self, messages: list[RelayMessage]) -> Sequence[Result]:
        sending = asyncio.ensure_future(self.transport.send(messages))
        try:
            done, _ = await asyncio.wait([sending], timeout=PATIENCE_SECONDS)
            if not done:
                # Not cancelled: a client that holds them in its buffer would send them all the same.
                self.circuit.suspect(TimeoutError(f"no answer within {PATIENCE_SECONDS:g} s"))
            found: Sequence[Result] = await sending
        except asyncio.CancelledError:
            sending.cancel()
            self.circuit.left()
            raise
        except Exception as error:  # noqa: BLE001 - a transport that does not know what became of them
            return [Unavailable(error)] * len(messages)
        if len(found) != len(messages):
            wrong = WrongResults(f"{self.name} answered {len(found)} results for {len(messages)} messages.")
            return [Unavailable(wrong)] * len(messages)
        return found

    def _outcomes(self, results: Sequence[Result | None]) -> list[Outcome]:
        if not any(isinstance(result, Sent | Refused) for result in results):
            return [RELEASE] * len(results)
        return [self._outcome(result) for result in results]

    @property
    def _comes_at_once(self) -> bool:
        """Whether what a broker did not take is given back: it waits at the circuit, or for another process."""
        return self._group is None and (self.circuit.is_over or not self.circuit.is_closed)

    def _outcome(self, result: Result | None) -> Outcome:
        match result:
            case Sent():
                return DONE
            case Refused(error=error, again=again):
                return Retry(error=error) if again else Dead(REJECTED, error)
            case Unavailable(error=error) if not self._comes_at_once:
                # An error of its own for each: a batch that one error ended would be tried again one by one.
                put_off = BrokerUnavailable(f"{self.name}: {type(error).__name__}: {error}")
                return Retry(max(PUT_OFF_SECONDS, self.circuit.pause), put_off, counts=False)
            case None if self._group is not None:
                # Not a release: for that, a topic would begin the whole batch again.
                return Retry(0.0, counts=False)
            case Unavailable() | None:
                return RELEASE
            case _:
                assert_never(result)

    def _tell(self, results: Sequence[Result | None], seconds: float) -> None:
        if self._events is not None and events.Relayed in self._events:
            sent = sum(isinstance(result, Sent) for result in results)
            refused = sum(isinstance(result, Refused) for result in results)
            if sent or refused:
                self._events.emit(events.Relayed(self.relay, self.name, sent, refused, self.in_flight, seconds))

    def _down(self, error: BaseException) -> None:
        if self._events is not None:
            self._events.emit(events.RelayDown(self.relay, self.name, error))

    def _up(self, seconds: float) -> None:
        if self._events is not None:
            self._events.emit(events.RelayUp(self.relay, self.name, seconds))
