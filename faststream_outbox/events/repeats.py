"""What was said already: an outage that goes on is a line when it begins, and then one after ever longer times.

Loops tell of every try that failed, because metrics count them; a log that fills up with them hides everything else.
Pure bookkeeping on given times. Used by the journal.
"""

from collections.abc import Hashable
from dataclasses import dataclass

FIRST_SILENCE = 30.0
LONGEST_SILENCE = 3600.0
OVER_SECONDS = 60.0
"""What was not heard of for so long is over, also if nobody said so: tries are never that far apart."""


@dataclass(slots=True)
class _Said:
    text: str
    say_at: float
    silence: float
    heard_at: float


class Repeats:
    """When each kind of line was said last."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Hashable, _Said] = {}

    def is_news(self, what: Hashable, text: str, now: float) -> bool:
        """Whether to say it: it is new, it is another text than the last time, or it is time to say it again."""
        said = self._said.get(what)
        if said is None or said.text != text or now - said.heard_at >= OVER_SECONDS:
            self._said[what] = _Said(text, now + FIRST_SILENCE, FIRST_SILENCE, now)
            return True
        said.heard_at = now
        if now < said.say_at:
            return False
        said.silence = min(2 * said.silence, LONGEST_SILENCE)
        said.say_at = now + said.silence
        return True

    def over(self, what: Hashable) -> None:
        """It works again: the next time is news."""
        self._said.pop(what, None)
