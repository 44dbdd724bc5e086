"""Which messages of a batch may be sent at the same time: pure decisions.

Of each key one at a time, each after the confirm of the one before; what has no key all at once. A key whose message
was not taken stops there, and the rest of the batch goes on. Used by `line`.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence

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
