"""A model of leases without keys: publishers, workers that claim, handle, settle and renew, and answers that get lost.

Each step is a statement of the product, with its commit:

| step | statement |
|---|---|
| `publisher: commit` | the end of a transaction with an INSERT of `publish.sql` |
| `claim` | `claim.sql` `claim`: the first message above the floor that is free, or whose lease has run out |
| `claim found` | `claim.sql` `claim_found`: one below the floor, which a full scan has found |
| `hint` | a wake-up, which lowers the floor |
| `begin`, `drop`, `end …` | the handler; dropped is what waited beyond its deadline |
| `settle`, `settle again` | `settle.sql` `settle_done`, `settle_retry`, `settle_dead`, `settle_release` |
| `renew` | `settle.sql` `renew` |
| `stop`, `crash` | the worker gives back what waits; its process is killed, and comes again |
| `deadline`, `runs out`, `is due` | time: of a worker's clock, of a lease on the server, of a retry |

`, unheard` means that the statement was committed and its answer was lost. Only the first worker loses answers, stands
still, stops and crashes: the other one is the one who has to finish.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.models.explorer import End
from tests.models.tick_model import put

NOBODY = 0


class Message(NamedTuple):
    """A row, and what became of it."""

    phase: str = "unborn"
    token: int = NOBODY
    is_alive: bool = False
    is_due: bool = True
    is_tried: bool = False
    dead_letters: int = 0
    end: str = ""


class Hold(NamedTuple):
    """A message that a worker has in hand: it waits, runs, or has ended somehow and is to be settled."""

    token: int
    phase: str = "waiting"
    is_unsure: bool = False
    is_stale: bool = False
    is_lost: bool = False


class Worker(NamedTuple):
    """A process."""

    holds: tuple[Hold | None, ...]
    floor: int = 0
    unheard: int = NOBODY
    is_stopping: bool = False
    burying: int = 0


class Queue(NamedTuple):
    """A state of everything; `fault` is what a step has just done and must not do."""

    messages: tuple[Message, ...]
    workers: tuple[Worker, ...]
    fault: str = ""


@dataclass(frozen=True)
class LeaseModel:
    """So many messages and workers, and whether nothing fails; the other fields are mistakes that could be made."""

    messages: int = 2
    workers: int = 2
    is_calm: bool = False
    settles_without_token: bool = False
    renews_without_token: bool = False
    begins_late: bool = False
    claims_what_lives: bool = False
    buries_in_two_steps: bool = False
    floor_without_scan: bool = False
    forgets_unheard_leases: bool = False

    def start(self) -> Queue:
        return Queue((Message(),) * self.messages, (Worker((None,) * self.messages),) * self.workers)

    def steps(self, state: Queue) -> Iterator[tuple[str, Queue]]:
        for at, message in enumerate(state.messages):
            if message.phase == "unborn":
                yield f"publisher {at + 1}: commit", changed(state, at, phase="there")
            if message.phase == "there" and not message.is_due:
                yield f"time: {at + 1} is due", changed(state, at, is_due=True)
            if message.is_alive and not self._is_protected(state, at):
                yield f"time: the lease of {at + 1} runs out", changed(state, at, is_alive=False)
        for place in range(len(state.workers)):
            for name, after in self._work(state, place):
                yield f"worker {place}: {name}", after

    def _is_protected(self, state: Queue, at: int) -> bool:
        if self.forgets_unheard_leases:
            return True
        holds = [worker.holds[at] for worker in state.workers]
        return any(h is not None and h.token == state.messages[at].token and not h.is_stale for h in holds)

    def _work(self, state: Queue, place: int) -> Iterator[tuple[str, Queue]]:
        worker = state.workers[place]
        is_first = place == 0 and not self.is_calm
        if not worker.is_stopping and not worker.burying:
            yield from self._claim(state, place)
        for at, hold in enumerate(worker.holds):
            if hold is not None:
                yield from self._handle(state, place, at, hold)
                if is_first and not hold.is_stale:
                    yield f"deadline of {at + 1}", held(state, place, at, hold._replace(is_stale=True))
                if is_first and not hold.is_lost and (hold.is_stale or self.renews_without_token):
                    yield f"renew {at + 1}", self._renewed(state, place, at, hold)
        if worker.burying:
            at = worker.burying - 1
            letters = state.messages[at].dead_letters + 1
            buried = changed(with_worker(state, place, worker._replace(burying=0)), at, dead_letters=letters)
            yield f"bury {at + 1}", buried
        if is_first and any(worker.holds):
            yield "crash", with_worker(state, place, Worker((None,) * len(worker.holds)))
        if is_first and not worker.is_stopping:
            given = tuple(h._replace(phase="release") if h and h.phase == "waiting" else h for h in worker.holds)
            yield "stop", with_worker(state, place, worker._replace(is_stopping=True, holds=given))

    def _claim(self, state: Queue, place: int) -> Iterator[tuple[str, Queue]]:
        worker = state.workers[place]
        free = [at for at in range(len(state.messages)) if self._is_free(state, worker, at)]
        above = [at for at in free if at + 1 > worker.floor]
        below = [at for at in free if at + 1 <= worker.floor and not self.floor_without_scan]
        for name, found in (("claim", above[:1]), ("claim found", below)):
            for at in found:
                token = fresh_token(state)
                taken = changed(state, at, token=token, is_alive=True)
                moved = worker._replace(floor=max(worker.floor, at + 1))
                heard = moved._replace(holds=put(worker.holds, at, Hold(token)))
                yield f"{name} {at + 1}", with_worker(taken, place, heard)
                if place == 0 and not self.is_calm and worker.unheard == NOBODY:
                    # The floor does not move by what was not heard.
                    unheard = with_worker(taken, place, worker._replace(unheard=token))
                    yield f"{name} {at + 1}, unheard", unheard
        if worker.floor and not self.floor_without_scan:
            yield "hint", with_worker(state, place, worker._replace(floor=0))

    def _is_free(self, state: Queue, worker: Worker, at: int) -> bool:
        message = state.messages[at]
        if message.phase != "there" or not message.is_due or worker.holds[at] is not None:
            return False
        is_ours = message.token == worker.unheard != NOBODY
        return not message.is_alive or is_ours or self.claims_what_lives

    def _handle(self, state: Queue, place: int, at: int, hold: Hold) -> Iterator[tuple[str, Queue]]:
        number = at + 1
        message = state.messages[at]
        if hold.phase == "waiting":
            if self.begins_late or not (hold.is_stale or hold.is_lost):
                begun = held(state, place, at, hold._replace(phase="running"))
                if message.token != hold.token or not message.is_alive:
                    begun = begun._replace(fault="a handler begins without a lease")
                yield f"begin {number}", begun
            else:
                yield f"drop {number}", held(state, place, at, None)
        elif hold.phase == "running":
            for outcome in ("done", "dead") if message.is_tried else ("done", "retry"):
                yield f"end {number} {outcome}", held(state, place, at, hold._replace(phase=outcome))
        else:
            name = "settle again" if hold.is_unsure else "settle"
            after = self._settled(state, place, at, hold)
            yield f"{name} {number} {hold.phase}", held(after, place, at, None)
            if place == 0 and not self.is_calm and not hold.is_unsure:
                yield f"{name} {number} {hold.phase}, unheard", held(after, place, at, hold._replace(is_unsure=True))

    def _settled(self, state: Queue, place: int, at: int, hold: Hold) -> Queue:
        message = state.messages[at]
        is_ours = message.token == hold.token
        if message.phase != "there" or not (is_ours or self.settles_without_token):
            return state
        if not is_ours:
            state = state._replace(fault="a message is settled by somebody who does not hold it")
        free: dict[str, Any] = {"token": NOBODY, "is_alive": False}
        match hold.phase:
            case "done":
                return changed(state, at, phase="gone", end="done", **free)
            case "dead" if self.buries_in_two_steps:
                worker = state.workers[place]._replace(burying=at + 1)
                return changed(with_worker(state, place, worker), at, phase="gone", end="dead", **free)
            case "dead":
                letters = message.dead_letters + 1
                return changed(state, at, phase="gone", end="dead", dead_letters=letters, **free)
            case "retry":
                return changed(state, at, is_due=False, is_tried=True, **free)
            case _:
                return changed(state, at, **free)

    def _renewed(self, state: Queue, place: int, at: int, hold: Hold) -> Queue:
        message = state.messages[at]
        if message.phase == "there" and (message.token == hold.token or self.renews_without_token):
            return held(changed(state, at, is_alive=True), place, at, hold._replace(is_stale=False))
        return held(state, place, at, hold._replace(is_lost=True))

    def wrong(self, state: Queue) -> str | None:
        if state.fault:
            return state.fault
        for at, message in enumerate(state.messages):
            holds = [h for w in state.workers if (h := w.holds[at]) is not None]
            if sum(h.phase == "running" and not h.is_stale and not h.is_lost for h in holds) > 1:
                return "a message is handled by two whose leases live"
            if message.phase == "gone" and not message.end:
                return "a message is lost"
            is_under_way = any(worker.burying == at + 1 for worker in state.workers)
            if message.dead_letters != (message.end == "dead") and not is_under_way:
                return "a message is gone and there is not one dead letter of it"
        return None

    def ends(self) -> Mapping[str, End[Queue]]:
        def is_done(state: Queue) -> bool:
            return all(m.phase == "gone" for m in state.messages) and not any(h for w in state.workers for h in w.holds)

        def is_left_to_the_other(state: Queue) -> bool:
            return state.workers[0].is_stopping

        return {
            "a message is never settled": End(lambda _: True, is_done),
            "a message waits for a worker that has stopped": End(
                is_left_to_the_other, lambda s: is_left_to_the_other(s) and is_done(s)
            ),
        }


def changed(state: Queue, at: int, **changes: Any) -> Queue:
    """Another version of a row."""
    return state._replace(messages=put(state.messages, at, state.messages[at]._replace(**changes)))


def with_worker(state: Queue, place: int, worker: Worker) -> Queue:
    """The same with this worker in its place."""
    return state._replace(workers=put(state.workers, place, worker))


def held(state: Queue, place: int, at: int, hold: Hold | None) -> Queue:
    """The same with this in the worker's hand."""
    worker = state.workers[place]
    return with_worker(state, place, worker._replace(holds=put(worker.holds, at, hold)))


def fresh_token(state: Queue) -> int:
    """A token that nobody has: which one does not matter."""
    used = {m.token for m in state.messages} | {w.unheard for w in state.workers}
    used |= {h.token for w in state.workers for h in w.holds if h is not None}
    return next(token for token in range(1, 100) if token not in used)
