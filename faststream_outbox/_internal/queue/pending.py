"""Outcomes of one kind that wait to be written, and how to go on when a statement of theirs failed.

`settling` says which statement writes them, with which values. What fails is halved until the outcome that cannot be
written is alone; that one is tried again apart from the others, with a pause of its own, and its neighbours go first.
In an outage the whole kind pauses, instead of trying once per message. A message is set apart only where its data is
the cause, and only after it was refused several times over some seconds, alone. Bookkeeping on given times. Used by
`settler`, one `Pending` for each kind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import random
from typing import TYPE_CHECKING, Any, assert_never

from faststream_outbox._internal.outcomes.failure import Renderer, described, storable
from faststream_outbox._internal.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox._internal.poison import Narrowing, Strikes
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.service import pause_after

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


Ended = tuple[Claim, FinalOutcome]
"""A claim, and the outcome to be written."""


def kind_of(items: Sequence[Ended]) -> type[FinalOutcome]:
    """The kind of outcomes that are all of one kind."""
    _, outcome = items[0]
    return type(outcome)


def settling(
    items: Sequence[Ended], *, keeps_dead: bool, renderer: Renderer | None = None
) -> tuple[str, dict[str, Any]] | None:
    """The statement's name and values; None where there is nothing to write. All outcomes are of one kind."""
    _, outcome = items[0]
    values = _leases(items)
    match outcome:
        case Done():
            return "settle_done", values
        case Retry():
            values["delays"] = [item.delay for _, item in items if isinstance(item, Retry)]
            values["attempts"] = [int(item.counts) for _, item in items if isinstance(item, Retry)]
            return "settle_retry", values
        case Release():
            values["uncounted"] = [int(not item.counts) for _, item in items if isinstance(item, Release)]
            return "settle_release", values
        case Dead():
            return ("settle_dead", values | _verdicts(items, renderer)) if keeps_dead else ("settle_done", values)
        case Settled():
            return None
        case _:
            assert_never(outcome)


def setting_apart(item: Ended, error: BaseException) -> dict[str, Any]:
    """The values that set a message apart whose outcome was refused."""
    _, outcome = item
    # Not the outcome's own text: it may hold an error whose rendering raises.
    if isinstance(outcome, Dead):
        reason = f"{_said(outcome.reason)}; dead letter refused: {error!r}"
    else:
        reason = f"{type(outcome).__name__} refused: {error!r}"
    return _leases([item]) | {"reasons": [storable(reason, 1000)]}


def written_before(number: int, outcome: FinalOutcome, stays: Mapping[int, bool]) -> bool:
    """Whether an earlier try wrote it before its answer was lost; `stays` says which rows exist, and are held."""
    if isinstance(outcome, Retry | Release):
        return not stays.get(number)
    return number not in stays


def _said(reason: object) -> str:
    try:
        return str(reason)
    except Exception as problem:  # noqa: BLE001 - an object of the user's; storing a failure must not fail
        return f"{type(reason).__name__} ({type(problem).__name__} while rendering it)"


def _leases(items: Sequence[Ended]) -> dict[str, Any]:
    return {
        "ids": [claim.id for claim, _ in items],
        "tokens": [claim.acquired_token for claim, _ in items],
    }


def _verdicts(items: Sequence[Ended], renderer: Renderer | None) -> dict[str, list[Any]]:
    dead = [(claim, outcome) for claim, outcome in items if isinstance(outcome, Dead)]
    failures = [described(outcome.error, renderer) for _, outcome in dead]
    return {
        "attempts": [int(claim.was_started) for claim, _ in dead],
        "reasons": [storable(_said(outcome.reason), 64) for _, outcome in dead],
        "exceptions": [failure.exception for failure in failures],
        "error_types": [failure.error_type for failure in failures],
        "error_messages": [failure.error_message for failure in failures],
        "tracebacks": [failure.traceback for failure in failures],
    }


APART_TIMES = 5
APART_SECONDS = 3.0
"""What was refused so often, over so long a time, will be refused for ever."""
MOST_REFUSED = 1_000_000
"""Refused outcomes of a kind that are counted: what is forgotten would be tried for ever."""


MOST_PER_STATEMENT = 1000
LONGEST_BREATH = 0.1
"""Seconds between two refusals of single outcomes at most: each costs a connection."""


@dataclass(slots=True, eq=False)
class Apart:
    """One outcome that failed alone."""

    item: Ended
    at: float
    tries: int = 1
    error: BaseException | None = None
    """Why it is given up and to be set apart; None until then."""

    @property
    def claim(self) -> Claim:
        """Whose outcome it is."""
        claim, _ = self.item
        return claim


class Pending:
    """Outcomes of one kind."""

    __slots__ = ("_at", "_breaths", "_group", "_refusals", "apart", "failures", "fresh")

    def __init__(self) -> None:
        self.fresh: list[Ended] = []
        self.apart: list[Apart] = []
        self.failures = 0
        """Statements in a row that failed without being refused."""
        self._group = Narrowing(MOST_PER_STATEMENT)
        """How many to write at once."""
        self._refusals: Strikes[Claim] = Strikes(MOST_REFUSED)
        self._breaths = 0
        self._at = 0.0

    def __len__(self) -> int:
        return len(self.fresh) + len(self.apart)

    def take(self, now: float) -> list[Ended]:
        """What one statement should write now."""
        if now < self._at or not self.fresh:
            return []
        most = self._group.limit
        group, self.fresh = self.fresh[:most], self.fresh[most:]
        return group

    def take_apart(self, now: float) -> Apart | None:
        """One that failed alone and should be tried again now."""
        if now < self._at:
            return None
        due = next((apart for apart in self.apart if apart.at <= now), None)
        if due is not None:
            self.apart.remove(due)
        return due

    def put_back(self, group: list[Ended]) -> None:
        """These were not written: they are the first again."""
        self.fresh[:0] = group

    def give_up(self, worker: "Worker") -> list[Claim]:
        """Forget the outcomes of this worker's claims; gives those."""
        out = [claim for claim, _ in self.fresh if claim.worker is worker]
        out += [apart.claim for apart in self.apart if apart.claim.worker is worker]
        self.fresh = [(claim, outcome) for claim, outcome in self.fresh if claim.worker is not worker]
        self.apart = [apart for apart in self.apart if apart.claim.worker is not worker]
        self._refusals.forget(out)
        return out

    def wakes_at(self) -> float:
        """When there is something to try, if nothing new comes before."""
        first = 0.0 if self.fresh else min((apart.at for apart in self.apart), default=float("inf"))
        return max(first, self._at)

    def wrote(self) -> None:
        """A statement was written."""
        self.failures = self._breaths = 0
        self._group.worked()

    def over(self, apart: Apart) -> None:
        """One that was tried alone was written, or nobody waits for it any more."""
        self._refusals.forget([apart.claim])

    def failed(self, group: list[Ended], now: float, *, is_connected: bool) -> None:
        """A statement failed, and not because of its data."""
        self._pause(now)
        if not is_connected or self.failures < 2 or not group:
            self.put_back(group)
        elif len(group) > 1:
            # Perhaps one of them is to blame after all, as one whose row somebody has locked.
            self._group.failed(len(group))
            self.put_back(group)
        else:
            self.apart.append(Apart(group[0], self._at))

    def refused(self, group: list[Ended], now: float) -> None:
        """The server refused the data of a statement."""
        if len(group) > 1:
            self._group.failed(len(group))
            self.put_back(group)
        elif group:
            self.refused_apart(Apart(group[0], now, tries=0), now)

    def blocked(self, group: list[Ended], now: float) -> None:
        """Somebody has locked the row of one of these: the others need not wait for it."""
        if len(group) > 1:
            self._group.failed(len(group))
            self.put_back(group)
        elif group:
            self._keep_apart(Apart(group[0], now, tries=0), now)

    def failed_apart(self, apart: Apart, now: float) -> None:
        """One that was tried alone failed, and not because of its data."""
        self._pause(now)
        self._keep_apart(apart, now)

    def blocked_apart(self, apart: Apart, now: float) -> None:
        """The row of one that was tried alone is still locked."""
        self._keep_apart(apart, now)

    def refused_apart(self, apart: Apart, now: float, error: BaseException | None = None) -> None:
        """One that was tried alone was refused."""
        is_final = self._refusals.failed(apart.claim, now, times=APART_TIMES, seconds=APART_SECONDS)
        if apart.error is None and is_final:
            # Setting it apart is another statement, with pauses of its own.
            apart.error, apart.tries = error, 0
        self._breaths += 1
        self._at = now + min(LONGEST_BREATH, pause_after(self._breaths))
        self._keep_apart(apart, now)

    def _keep_apart(self, apart: Apart, now: float) -> None:
        apart.tries += 1
        apart.at = now + pause_after(apart.tries)
        self.apart.append(apart)

    def _pause(self, now: float) -> None:
        self.failures += 1
        self._at = now + pause_after(self.failures, random())
