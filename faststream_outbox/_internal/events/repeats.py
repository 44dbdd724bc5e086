"""What was said already: an outage that goes on is a line when it begins, and then one after ever longer times.

Many loops tell of every try that failed, because metrics count them; a log that fills up with them hides everything
else. Pure bookkeeping on given times. Used by the event log.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

FIRST_SILENCE = 30.0
LONGEST_SILENCE = 3600.0
SLACK = 0.5
"""Who tells after the same silences by a clock of its own may be a moment early."""
OVER_SECONDS = 150.0
"""What was not heard of for so long is over, also if nobody said so: tries are never that far apart."""
MOST_KINDS = 8
"""After so many kinds of errors of one outage a further one is no news: perhaps each has a number in it."""


@dataclass(slots=True)
class _Said:
    since: float
    say_at: float
    silence: float
    heard_at: float
    kinds: set[Hashable] = field(default_factory=set)


class Repeats:
    """When each kind of line was said last."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Hashable, _Said] = {}

    def is_news(self, what: Hashable, kind: Hashable, now: float) -> bool:
        """Whether to say it: it is new, it fails in another way than before, or it is time to say it again."""
        said = self._said.get(what)
        if said is None or now - said.heard_at >= OVER_SECONDS:
            self._said[what] = _Said(now, now + FIRST_SILENCE, FIRST_SILENCE, now, {kind})
            return True
        said.heard_at = now
        if kind not in said.kinds and len(said.kinds) < MOST_KINDS:
            said.kinds.add(kind)
            return True
        if now < said.say_at - SLACK:
            return False
        said.silence = min(2 * said.silence, LONGEST_SILENCE)
        said.say_at = now + said.silence
        return True

    def over(self, what: Hashable, now: float) -> float | None:
        """It works again, so the next time is news: for how long it did not; None if nothing was said of that."""
        said = self._said.pop(what, None)
        return None if said is None else now - said.since
