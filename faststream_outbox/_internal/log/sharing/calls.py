"""Calls: what is said on the log's channel, that a tick was made or that something has changed for a group.

A tick is its number, as the sequencer's statement sends it. A call says that members or waiting messages have changed,
and names its group, so that nobody else has to do anything. Any role may write to the channel: a call of a group that
nobody here reads means nothing, whatever else was said means all groups, and neither is passed on more often than its
members can bear. A lost one costs a part of a lease. `Channel` is handed to the listener by the client, which sends
calls too, as whoever seeks does.
"""

import asyncio
import re
from collections.abc import Callable, Container
from typing import NamedTuple

from faststream_outbox._internal.log.sharing.slots import Group

CHANGED = "changed"
ALL_SECONDS = 1.0
"""How often all groups are called at most."""
GROUP_SECONDS = 0.05
"""How often one group is called at most."""

_CALL = re.compile(r"changed ([0-9a-f]{32})(?: ([0-9a-f]{32}))?")


class Call(NamedTuple):
    """Something has changed for a group, or for all; `sender` is who says so, where that is known."""

    digest: str | None
    sender: str = ""


EVERYBODY = Call(None)


def changed(group: Group, sender: str = "") -> str:
    """What to send when something has changed for a group."""
    return f"{CHANGED} {group.digest} {sender}".rstrip()


def call_in(payload: str) -> Call:
    """The call that a payload is; whatever is none of ours concerns everybody."""
    call = _CALL.fullmatch(payload)
    return EVERYBODY if call is None else Call(call[1], call[2] or "")


class Calls:
    """Hears calls, and passes on whom they concern: the digest of a group, or None for all."""

    def __init__(self, sender: str, groups: Container[str], pass_on: Callable[[str | None], None]) -> None:
        self.sender = sender
        self._groups = groups
        self._pass_on = pass_on
        self._passed_at: dict[str | None, float] = {}
        self._to_come: set[str | None] = set()

    def hear(self, call: Call) -> None:
        """Somebody has called."""
        digest = call.digest
        if digest is not None and (call.sender == self.sender or digest not in self._groups):
            return
        loop = asyncio.get_running_loop()
        pause = ALL_SECONDS if digest is None else GROUP_SECONDS
        at = self._passed_at.get(digest, float("-inf")) + pause
        if at <= loop.time():
            self._pass(digest)
        elif digest not in self._to_come:
            self._to_come.add(digest)
            loop.call_at(at, self._pass, digest)

    def _pass(self, digest: str | None) -> None:
        self._to_come.discard(digest)
        self._passed_at = {key: at for key, at in self._passed_at.items() if key is None or key in self._groups}
        self._passed_at[digest] = asyncio.get_running_loop().time()
        self._pass_on(digest)


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
