"""What is said on the log's channel: that a tick was made, or that something has changed for a group.

A tick is its number, as the sequencer's statement sends it; anything else is read by `calls`. Any role may write to
the channel: what is no number of a tick is a call, and one that is not ours concerns all groups. Handed to the
listener by the client.
"""

from collections.abc import Callable
from typing import NamedTuple

from faststream_outbox._internal.log.sharing.calls import EVERYBODY, Call, call_in

LONGEST_NUMBER = 19


class NewTick(NamedTuple):
    """A tick exists, says somebody."""

    number: int


def said(payload: str) -> NewTick | Call:
    """What a payload says."""
    if payload.isdecimal() and len(payload) <= LONGEST_NUMBER:
        return NewTick(int(payload))
    return call_in(payload)


class Channel:
    """Hands ticks and calls to those whom they concern."""

    def __init__(self, tick: Callable[[int], None], call: Callable[[Call], None]) -> None:
        self._tick = tick
        self._call = call

    def hear(self, _: int, payload: str, /) -> None:
        """Somebody has said this."""
        match said(payload):
            case NewTick(number):
                self._tick(number)
            case call:
                self._call(call)

    def missed(self) -> None:
        """Something may have been said while nobody listened: all groups arrange themselves once."""
        self._call(EVERYBODY)
