"""What a bad line does to the bytes of a connection: late, slow, or not at all, one way or both.

A `Trouble` is given to a `Proxy` (`with proxy.trouble(...)`) and holds for old and new connections as long as that
block lasts. Used by tests of the network and by the machine's strikes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.link import Direction, Link

BOTH = frozenset(Direction)
REQUESTS = frozenset({Direction.REQUESTS})
ANSWERS = frozenset({Direction.ANSWERS})

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""PostgreSQL's answer to a COMMIT that was one. A COMMIT of a failed transaction is answered with ROLLBACK."""


def every(_: Link) -> bool:
    """All connections."""
    return True


@dataclass(frozen=True, eq=False, slots=True)
class Trouble:
    """One thing that is wrong with a line."""

    directions: frozenset[Direction] = BOTH
    delay: Callable[[], float] | None = None
    """Gives the seconds for which a piece waits before it is passed on."""
    rate: float | None = None
    """Bytes in a second at most."""
    swallow: bool = False
    """Nothing is passed on."""
    swallow_from: bytes | None = None
    """Nothing is passed on from the piece on that completes these bytes."""
    only: Callable[[Link], bool] = every

    def concerns(self, link: Link, direction: Direction) -> bool:
        return direction in self.directions and self.only(link)

    def swallows(self, link: Link, data: bytes) -> bool:
        """Whether this piece is lost; called once for each piece of a direction."""
        if self.swallow_from is None:
            return self.swallow
        if link.has_lost_answer:
            return True
        # The bytes may come in two pieces.
        seen = link.tail + data
        link.tail = seen[-len(self.swallow_from) + 1 :]
        link.has_lost_answer = self.swallow_from in seen
        return link.has_lost_answer

    def pause(self, size: int) -> float:
        """Seconds for which a piece of so many bytes waits."""
        late = 0.0 if self.delay is None else self.delay()
        return late + (0.0 if self.rate is None else size / self.rate)
