"""A model of one key: publishers that commit in any order, and workers that claim, check, handle and settle runs of it.

Each step is a statement of the product, or a part of one between which others can act:

| step | statement |
|---|---|
| `publisher: draw`, `commit`, `roll back` | an INSERT of `publish.sql`, and the end of its transaction |
| `claim` | `keys.sql` `claim_keys`: its snapshot, and the run that it finds there |
| `lock` | `claim_keys` again: it locks the run and the message behind it, or gives way (SKIP LOCKED) |
| `end leases` | `claim_keys`, where leases behind the run have run out: it ends them, and takes nothing |
| `commit`, `lose the answer` | the end of that statement |
| `ask` | `keys.sql` `overtaken`, for a run that something may have appeared in front of |
| `horizon` | `scan.sql` `drawn_ids`, and the waiting for writers of `Horizon` |
| `begin`, `end` | the handler |
| `done`, `retry`, `release` | `settle.sql` `settle_done`, `settle_retry`, `settle_release` |
| `renew` | `settle.sql` `renew`: the time is read when the row is locked |
| `deadline`, `runs out`, `is due` | time: of a worker's clock, of a lease on the server, of a retry |

A worker's own deadline always passes before its lease on the server does: it counts from before the claim was sent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.models.explorer import End
from tests.models.tick_model import put

Ids = frozenset[int]
NOBODY = 0


class Message(NamedTuple):
    """A message of the key; its number is its place, from 1 on."""

    phase: str = "unborn"
    token: int = NOBODY
    is_alive: bool = False
    """Whether its lease lives, on the server's clock."""
    is_put_off: bool = False
    """Whether it was retried."""
    is_due: bool = True


class Worker(NamedTuple):
    """A process. What it has of the key is its run, which it handles from the first to the last."""

    phase: str = "idle"
    token: int = NOBODY
    run: tuple[int, ...] = ()
    length: int = 0
    """Of the run, how much is to be claimed; the rest is the message behind it."""
    seen: tuple[int, ...] = ()
    """Tokens of the run, and of the message behind it, as the claim's snapshot showed them."""
    moved: Ids = frozenset()
    """Of these messages, those that were written to since that snapshot."""
    is_certain: bool = False
    passed: Ids = frozenset()
    """Messages that were there, and that the claim did not begin with although they are lower."""
    done: Ids = frozenset()
    """Handled, and the outcome not written yet."""
    stale: Ids = frozenset()
    """Leases whose deadline has passed on the worker's own clock."""
    lost: Ids = frozenset()
    renewing: Ids | None = None
    decided: int = 0
    floor: int = 0
    unheard: int = NOBODY


class Scene(NamedTuple):
    """A state of everything."""

    messages: tuple[Message, ...]
    workers: tuple[Worker, ...]

    def at(self, number: int) -> Message:
        return self.messages[number - 1]

    @property
    def there(self) -> list[int]:
        return [number for number, m in enumerate(self.messages, start=1) if m.phase == "there"]


@dataclass(frozen=True)
class KeyModel:
    """So many messages and workers, with their longest runs. Then: what may happen, and mistakes that could be made.

    Where leases expire, it is the first worker that stands still now and then; the others renew theirs in time.
    """

    messages: int = 3
    runs: tuple[int, ...] = (1, 1)
    is_published: bool = False
    expires: bool = False
    retries: bool = False
    loses_answers: bool = False
    without_asking: bool = False
    without_lock_behind: bool = False
    without_horizon_of_writers: bool = False
    revives: bool = False
    renews_by_old_time: bool = False
    looks_at_head_only: bool = False
    rechecks_place: bool = True
    leaves_leases: bool = False

    def start(self) -> Scene:
        message = Message("there" if self.is_published else "unborn")
        decided = self.messages if self.is_published else 0
        return Scene((message,) * self.messages, (Worker(decided=decided),) * len(self.runs))

    def steps(self, state: Scene) -> Iterator[tuple[str, Scene]]:
        yield from self._publish(state)
        for place in range(len(state.workers)):
            for name, after in (*self._work(state, place), *self._pass_time(state, place)):
                yield f"worker {place}: {name}", after
        for number in state.there:
            if not state.at(number).is_due:
                yield f"time: {number} is due", changed(state, number, is_due=True)
            if self.expires and state.at(number).is_alive and not self._is_protected(state, number):
                yield f"time: the lease of {number} runs out", changed(state, number, is_alive=False)

    def _is_protected(self, state: Scene, number: int) -> bool:
        """Whether the holder's own deadline has not passed yet, or the holder is none that stands still."""
        for place, worker in enumerate(state.workers):
            if worker.token == state.at(number).token and number in (*worker.run, *worker.done):
                return place > 0 or number not in worker.stale
        return False

    def _publish(self, state: Scene) -> Iterator[tuple[str, Scene]]:
        drawn = [number for number, m in enumerate(state.messages, start=1) if m.phase != "unborn"]
        if len(drawn) < len(state.messages):
            number = len(drawn) + 1
            yield f"publisher {number}: draw", changed(state, number, phase="open")
        for number in drawn:
            if state.at(number).phase == "open":
                yield f"publisher {number}: commit", changed(state, number, phase="there")
                yield f"publisher {number}: roll back", changed(state, number, phase="gone")

    def _work(self, state: Scene, place: int) -> Iterator[tuple[str, Scene]]:
        worker = state.workers[place]
        match worker.phase:
            case "idle":
                decided = self._horizon(state)
                if decided > worker.decided:
                    yield "horizon", with_worker(state, place, worker._replace(decided=decided))
                claimed = self._claim(state, place, worker)
                if claimed is not None and (left := self._left(state, claimed)):
                    after = state
                    for number in left - locked(state, place):
                        after = written(after, number, token=NOBODY)
                    yield "end leases", after
                elif claimed is not None:
                    yield "claim", with_worker(state, place, claimed)
            case "claiming":
                yield self._lock(state, place, worker)
            case "locked":
                after = self._taken(state, place, worker)
                yield "commit", after
                if self.loses_answers and worker.unheard == NOBODY:
                    kept = Worker(decided=worker.decided, floor=worker.floor, unheard=worker.token)
                    yield "lose the answer", with_worker(after, place, kept)
            case "asking":
                is_overtaken = any(number < worker.run[0] for number in active(state))
                phase = "ready" if self.without_asking or not is_overtaken else "releasing"
                yield "ask", with_worker(state, place, worker._replace(phase=phase))
            case "ready":
                yield self._begin(state, place, worker)
            case "running":
                yield from self._end(state, place, worker)
            case "retrying" if worker.run[0] not in locked(state, place):
                head, *later = worker.run
                after = self._settled(state, head, worker.token, is_put_off=True, is_due=False)
                left = worker._replace(phase="releasing", run=tuple(later))
                yield f"retry {head}", with_worker(after, place, self._rested(left))
            case "releasing" if worker.run[0] not in locked(state, place):
                head, *later = worker.run
                after = self._settled(state, head, worker.token)
                yield f"release {head}", with_worker(after, place, self._rested(worker._replace(run=tuple(later))))
        # One statement writes them all, and waits for the first where that is locked.
        for number in sorted(worker.done)[:1]:
            if number not in locked(state, place):
                in_front = [lower for lower in active(state) if lower < number]
                is_early = self.is_published and any(state.at(n).token != worker.token for n in in_front)
                mine = self._settled(state, number, worker.token, phase="early" if is_early else "gone")
                left = worker._replace(done=worker.done - {number})
                yield f"done {number}", with_worker(mine, place, self._rested(left))

    def _horizon(self, state: Scene) -> int:
        phases = [message.phase for message in state.messages]
        drawn = sum(phase != "unborn" for phase in phases)
        if self.without_horizon_of_writers:
            return drawn
        return min([drawn, *(place for place, phase in enumerate(phases) if phase == "open")])

    def _claim(self, state: Scene, place: int, worker: Worker) -> Worker | None:
        """The run that the statement's snapshot shows, if nobody holds a message of the key."""
        mine = (NOBODY, worker.unheard)
        heads = [n for n in active(state) if n >= worker.floor or state.at(n).is_put_off]
        held = heads[:1] if self.looks_at_head_only else heads
        if not heads or not state.at(heads[0]).is_due:
            return None
        if any(state.at(n).is_alive and state.at(n).token not in mine for n in held):
            return None
        late = [at for at, n in enumerate(heads) if not state.at(n).is_due]
        length = min([self.runs[place], len(heads), *late])
        run, behind = heads[:length], heads[length : length + 1]
        has_timers = any(state.at(number).is_put_off for number in state.there)
        return worker._replace(
            phase="claiming",
            token=fresh_token(state),
            run=tuple(run + behind),
            length=length,
            seen=tuple(state.at(number).token for number in run + behind),
            moved=frozenset(),
            is_certain=not has_timers and run[0] <= worker.decided,
            passed=frozenset(number for number in active(state) if number < run[0]),
            floor=min(worker.decided, run[0]) if worker.decided else 0,
        )

    def _left(self, state: Scene, claimed: Worker) -> Ids:
        """Leases that have run out, if one of them lies behind the run that would be claimed."""
        ours = (NOBODY, claimed.unheard)
        left = frozenset(n for n in state.there if state.at(n).token not in ours and not state.at(n).is_alive)
        return frozenset() if self.leaves_leases or left <= set(claimed.run[: claimed.length]) else left

    def _lock(self, state: Scene, place: int, worker: Worker) -> tuple[str, Scene]:
        run, behind = worker.run[: worker.length], worker.run[worker.length :]
        others = [other for at, other in enumerate(state.workers) if at != place and other.phase == "locked"]
        written = {number for other in others for number in other.run}
        read = {number for other in others for number in other.seen}
        is_same = all(
            state.at(number).phase == "there"
            and state.at(number).token == token
            and not (self.rechecks_place and number in worker.moved)
            for number, token in zip(worker.run, worker.seen, strict=True)
            if number in run or not self.without_lock_behind
        )
        is_free = not (written | read) & set(run) and (self.without_lock_behind or not written & set(behind))
        if not is_same or not is_free:
            return "give way", with_worker(state, place, rest(worker))
        # From here on `seen` is the message behind the run, which is locked too, so that no other claim takes it.
        seen = () if self.without_lock_behind else behind
        return "lock", with_worker(state, place, worker._replace(phase="locked", run=run, length=0, seen=seen))

    def _taken(self, state: Scene, place: int, worker: Worker) -> Scene:
        for number in worker.run:
            state = written(state, number, token=worker.token, is_alive=True)
        phase = "ready" if worker.is_certain else "asking"
        heard = worker._replace(phase=phase, seen=(), moved=frozenset())
        return with_worker(state, place, heard)

    def _begin(self, state: Scene, place: int, worker: Worker) -> tuple[str, Scene]:
        number = worker.run[0]
        if number not in worker.stale and number not in worker.lost:
            return f"begin {number}", with_worker(state, place, worker._replace(phase="running"))
        # What was dropped is left to its lease; the rest of the run is given back.
        dropped = worker._replace(phase="releasing", run=worker.run[1:])
        return f"drop {number}", with_worker(state, place, self._rested(dropped))

    def _end(self, state: Scene, place: int, worker: Worker) -> Iterator[tuple[str, Scene]]:
        number, *rest_ = worker.run
        after = worker._replace(phase="ready", run=tuple(rest_), done=worker.done | {number}, passed=frozenset())
        yield f"end {number}", with_worker(state, place, self._rested(after))
        if self.retries and not state.at(number).is_put_off:
            yield f"fail {number}", with_worker(state, place, worker._replace(phase="retrying"))

    def _settled(self, state: Scene, number: int, token: int, **changes: Any) -> Scene:
        """A statement that changes a message if the token is still on it."""
        if state.at(number).phase != "there" or state.at(number).token != token:
            return state
        return written(state, number, **{"token": NOBODY, "is_alive": False, **changes})

    def _rested(self, worker: Worker) -> Worker:
        if worker.run:
            return worker
        return worker._replace(phase="settling") if worker.done else rest(worker)

    def _pass_time(self, state: Scene, place: int) -> Iterator[tuple[str, Scene]]:
        worker = state.workers[place]
        if not self.expires or place or worker.phase in ("idle", "claiming", "locked"):
            return
        held = frozenset((*worker.run, *worker.done))
        if worker.renewing is not None or (held - worker.lost and not self.renews_by_old_time):
            yield "renew", self._renewed(state, place, worker, held)
        elif held - worker.lost:
            now = frozenset(n for n in held if state.at(n).token == worker.token and state.at(n).is_alive)
            yield "begin to renew", with_worker(state, place, worker._replace(renewing=now))
        if held - worker.stale - worker.lost:
            yield "deadline", with_worker(state, place, worker._replace(stale=worker.stale | held))

    def _renewed(self, state: Scene, place: int, worker: Worker, held: Ids) -> Scene:
        lost, stale, alive = worker.lost, worker.stale, worker.renewing
        if alive is None:
            alive = frozenset(n for n in held if state.at(n).token == worker.token and state.at(n).is_alive)
        for number in held - worker.lost:
            is_ours = state.at(number).phase == "there" and state.at(number).token == worker.token
            if is_ours and number in locked(state, place):
                continue
            if is_ours and (number in alive or self.revives):
                state, stale = written(state, number, is_alive=True), stale - {number}
            else:
                lost |= {number}
        return with_worker(state, place, worker._replace(renewing=None, lost=lost, stale=stale))

    def wrong(self, state: Scene) -> str | None:
        if any(message.phase == "early" for message in state.messages):
            return "a message is done, and one in front of it is handled again after it"
        running = [worker for worker in state.workers if worker.phase == "running"]
        believed = [w for w in running if w.run[0] not in w.stale and w.run[0] not in w.lost]
        leased = [w for w in running if state.at(w.run[0]).token == w.token and state.at(w.run[0]).is_alive]
        if len(believed) > 1 or len(leased) > 1:
            return "two messages of the key are handled at the same time"
        if any(number in state.there for worker in running for number in worker.passed):
            return "a message is handled before one that was there before it was claimed"
        return None

    def ends(self) -> Mapping[str, End[Scene]]:
        def is_done(state: Scene) -> bool:
            return all(m.phase == "gone" for m in state.messages) and all(w.phase == "idle" for w in state.workers)

        return {"a message is never handled": End(lambda _: True, is_done)}


def locked(state: Scene, place: int) -> Ids:
    """Rows that claims of others have locked and not committed: what settles waits, what renews passes over."""
    others = (w for at, w in enumerate(state.workers) if at != place and w.phase == "locked")
    return frozenset(number for worker in others for number in (*worker.run, *worker.seen))


def active(state: Scene) -> list[int]:
    """Messages that hold a place in the key: due, or tried before."""
    return [n for n in state.there if state.at(n).is_due or state.at(n).is_put_off]


def changed(state: Scene, number: int, **changes: Any) -> Scene:
    """Another state of a message that moves no row."""
    message = state.at(number)._replace(**changes)
    return state._replace(messages=put(state.messages, number - 1, message))


def written(state: Scene, number: int, **changes: Any) -> Scene:
    """Another version of a message's row: claims under way that have looked at the old one may notice."""
    workers = tuple(
        w._replace(moved=w.moved | {number}) if w.phase == "claiming" and number in w.run else w for w in state.workers
    )
    return changed(state._replace(workers=workers), number, **changes)


def with_worker(state: Scene, place: int, worker: Worker) -> Scene:
    """The same with this worker in its place."""
    return state._replace(workers=put(state.workers, place, worker))


def rest(worker: Worker) -> Worker:
    """A worker that has nothing of the key, and keeps what it knows."""
    return Worker(decided=worker.decided, floor=worker.floor, unheard=worker.unheard)


def fresh_token(state: Scene) -> int:
    """A token that nobody has: which one does not matter."""
    used = {m.token for m in state.messages} | {t for w in state.workers for t in (w.token, w.unheard, *w.seen)}
    return next(token for token in range(1, 100) if token not in used)
