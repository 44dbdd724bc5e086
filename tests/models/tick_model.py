"""A model of ticks, gaps and bounds: publishers, a stranger, two sequencers and a reader on one server.

Each step is a statement of the product, or a part of one between which others can act:

| step | statement |
|---|---|
| `writer: xid`, `writer: draw` | `log.sql` `append_one`: the xid first, then the number |
| `writer: commit`, `writer: roll back` | the publisher's own |
| `ticker: lock` | `tick.sql` `lock_head` |
| `ticker: owners` | `tick.sql` `owners` |
| `ticker: snapshot` | `tick.sql` `tick` begins |
| `ticker: commit` | `tick.sql` `tick` draws its xid, writes by its snapshot, and the transaction ends |
| `ticker: crash` | that transaction is rolled back |

Ticks are only ever added behind the last, because their number is a primary key: so whoever has read some, also under
REPEATABLE READ, has read a beginning of all later orders, and what comes late comes behind every reader.

Numbers of transactions are kept as even ranks: only their order counts, so that states stay finitely many however many
ticks are made. An odd number lies between two of them. Limits of a tick (slices) are not modelled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tests.models.explorer import End

Item = TypeVar("Item")
Order = tuple[int, ...]
"""Positions in the order of the log: by tick, and by number within one."""
Gaps = frozenset[tuple[int, int]]
"""Bounds and positions."""


class Writer(NamedTuple):
    """One transaction that publishes one message. It `follows` what was committed when its number was drawn."""

    phase: str = "idle"
    xid: int | None = None
    position: int | None = None
    follows: frozenset[int] = frozenset()


class Snapshot(NamedTuple):
    """Of a server: which transactions had ended, and what of the log was visible."""

    xmax: int
    running: frozenset[int]
    visible: frozenset[int] = frozenset()

    @property
    def xmin(self) -> int:
        return min(self.running, default=self.xmax)


class Ticker(NamedTuple):
    """A sequencer, in its transaction or not."""

    phase: str = "idle"
    ended: int = 0
    xid: int = 0
    snapshot: Snapshot | None = None


class Head(NamedTuple):
    """The newest row of the head: how far ticks were made, the gaps found last, and what counts for later."""

    high: int = 0
    gaps: frozenset[int] = frozenset()
    before: Snapshot | None = None
    floor: int = 0


class Log(NamedTuple):
    """A state of everything."""

    writers: tuple[Writer, ...]
    stranger: Writer
    tickers: tuple[Ticker, ...]
    drawn: int = 0
    next_xid: int = 2
    xmax: int = 2
    head: Head = Head()
    gaps: Gaps = frozenset()
    order: Order = ()

    @property
    def committed(self) -> frozenset[int]:
        return frozenset(w.position for w in self.writers if w.phase == "committed" and w.position is not None)

    @property
    def running(self) -> frozenset[int]:
        open_ = [w.xid for w in (*self.writers, self.stranger) if w.phase in ("xid", "drawn")]
        return frozenset(xid for xid in (*open_, *(t.xid for t in self.tickers)) if xid)


@dataclass(frozen=True)
class TickModel:
    """So many publishers and sequencers; the other fields are mistakes that the product could make."""

    writers: int = 3
    tickers: int = 2
    has_stranger: bool = True
    number_before_xid: bool = False
    xid_before_lock: bool = False
    bound_by_xmax: bool = False
    forgets_unread: bool = False
    ignores_running: bool = False
    lets_owners_be: bool = False

    def start(self) -> Log:
        stranger = Writer() if self.has_stranger else Writer("committed")
        return Log((Writer(),) * self.writers, stranger, (Ticker(),) * self.tickers)

    def steps(self, state: Log) -> Iterator[tuple[str, Log]]:
        found = [*self._write(state), *self._strange(state)]
        for place in range(len(state.tickers)):
            found += self._tick(state, place)
        for name, after in found:
            yield name, ranked(after)

    def _write(self, state: Log) -> Iterator[tuple[str, Log]]:
        for place, writer in enumerate(state.writers):
            if place and state.writers[place - 1].phase == "idle":
                # They are all alike: the next one is the first that has not begun.
                return
            for phase in _NEXT[writer.phase]:
                yield f"writer {place}: {self._named(phase)}", self._moved(state, place, phase)

    def _named(self, phase: str) -> str:
        other = {"xid": "drawn", "drawn": "xid"} if self.number_before_xid else {}
        return {"drawn": "draw", "committed": "commit", "rolled back": "roll back"}.get(
            other.get(phase, phase), other.get(phase, phase)
        )

    def _moved(self, state: Log, place: int, phase: str) -> Log:
        writer = state.writers[place]
        is_first = (phase == "xid") is not self.number_before_xid
        if phase in ("committed", "rolled back"):
            state, writer = ended(state, writer.xid), writer._replace(phase=phase, xid=None)
        elif phase in ("xid", "drawn") and is_first:
            writer = writer._replace(phase=phase, xid=state.next_xid)
            state = state._replace(next_xid=state.next_xid + 2)
        else:
            writer = writer._replace(phase=phase, position=state.drawn + 1, follows=state.committed)
            state = state._replace(drawn=state.drawn + 1)
        return state._replace(writers=put(state.writers, place, writer))

    def _strange(self, state: Log) -> Iterator[tuple[str, Log]]:
        if state.stranger.phase == "idle":
            stranger = Writer("xid", state.next_xid)
            yield "stranger: xid", state._replace(stranger=stranger, next_xid=state.next_xid + 2)
        elif state.stranger.phase == "xid":
            yield "stranger: commit", ended(state, state.stranger.xid)._replace(stranger=Writer("committed"))

    def _tick(self, state: Log, place: int) -> Iterator[tuple[str, Log]]:
        ticker, name = state.tickers[place], "ticker"

        def became(changed: Ticker, base: Log = state) -> Log:
            return base._replace(tickers=put(base.tickers, place, changed))

        if ticker.phase in ("idle", "early"):
            if self.xid_before_lock and ticker.phase == "idle":
                early = Ticker("early", xid=state.next_xid)
                yield f"{name}: xid", became(early, state._replace(next_xid=state.next_xid + 2))
            elif all(other.phase in ("idle", "early") for other in state.tickers):
                yield f"{name}: lock", became(ticker._replace(phase="locked"))
            return
        if ticker.phase == "locked":
            if not ticker.ended and not self.lets_owners_be:
                yield f"{name}: owners", became(ticker._replace(ended=owners(state)))
            yield f"{name}: snapshot", became(ticker._replace(phase="reading", snapshot=snapshot_of(state)))
        else:
            xid = ticker.xid or state.next_xid
            begun = became(ticker._replace(xid=xid), state._replace(next_xid=max(state.next_xid, xid + 2)))
            head, order, gaps = self._written(begun, begun.tickers[place])
            done = became(Ticker(), begun)._replace(head=head, order=order, gaps=gaps)
            yield f"{name}: commit", ended(done, xid)
        yield f"{name}: crash", ended(became(Ticker()), ticker.xid or None)

    def _written(self, state: Log, ticker: Ticker) -> tuple[Head, Order, Gaps]:
        """What the statement `tick` writes, by its snapshot."""
        snapshot, xid, head = ticker.snapshot, ticker.xid, state.head
        assert snapshot is not None
        dead = snapshot.xmax if self.ignores_running else max(snapshot.xmin, ticker.ended)
        since = 0
        if head.before is not None:
            over = [x for x in head.before.running if x < snapshot.xmax and x not in snapshot.running]
            since = min(over, default=head.before.xmax)
        known = {(bound, at) for bound, at in state.gaps if bound >= head.floor}
        looked = {(bound, at) for bound, at in known if bound > since}
        forgotten = {(bound, at) for bound, at in known - looked if bound <= dead}
        asked = looked | {(xid, at) for at in head.gaps}
        if self.forgets_unread:
            asked = {(bound, at) for bound, at in asked if bound > dead}
        late = {at for _, at in asked if at in snapshot.visible}
        fresh = {at for at in snapshot.visible if at > head.high}
        left = {(bound, at) for bound, at in asked if bound > dead and at not in late}
        gaps = frozenset(known - looked - forgotten | left)
        high = max(fresh, default=head.high)
        opened = frozenset(range(head.high + 1, high)) - fresh
        if self.bound_by_xmax:
            gaps, opened = gaps | {(snapshot.xmax, at) for at in opened}, frozenset()
        # Only ever behind what is there: the primary key of ticks sees to it.
        tick = tuple(sorted(late | fresh))
        floor = min([xid, *(bound for bound, _ in known)])
        before = snapshot._replace(visible=frozenset())
        return Head(high, opened, before, floor), state.order + tick, gaps

    def wrong(self, state: Log) -> str | None:
        order = state.order
        if len(set(order)) < len(order):
            return "a position is in two ticks"
        if not set(order) <= state.committed:
            return "a position is in a tick and not committed"
        open_ = {at for _, at in state.gaps} | state.head.gaps
        if any(at <= state.head.high and at not in order and at not in open_ for at in state.committed):
            return "a committed position is passed over for ever"
        for writer in state.writers:
            if writer.position in order:
                place = order.index(writer.position)
                if any(at not in order[:place] for at in writer.follows):
                    return "a message comes before one that was committed before its number was drawn"
        return None

    def ends(self) -> Mapping[str, End[Log]]:
        return {
            "not everything can get into a tick, or a gap stays for ever": End(lambda _: True, _is_done),
            "gaps wait for a stranger": End(
                lambda s: s.stranger.phase == "xid", lambda s: s.stranger.phase == "xid" and _is_done(s)
            ),
        }


_NEXT: Mapping[str, tuple[str, ...]] = {
    "idle": ("xid",),
    "xid": ("drawn",),
    "drawn": ("committed", "rolled back"),
    "committed": (),
    "rolled back": (),
}


def _is_done(state: Log) -> bool:
    has_ended = all(writer.phase in ("committed", "rolled back") for writer in state.writers)
    is_idle = all(ticker.phase == "idle" for ticker in state.tickers)
    return has_ended and is_idle and not state.gaps and not state.head.gaps and set(state.order) == state.committed


def put(values: tuple[Item, ...], place: int, value: Item) -> tuple[Item, ...]:
    """The same values with another one in a place."""
    return (*values[:place], value, *values[place + 1 :])


def ended(state: Log, xid: int | None) -> Log:
    """A transaction has ended; without an xid nobody hears of it. Then xmax lies behind the last that has ended."""
    if xid is None or xid < state.xmax:
        return state
    return state._replace(xmax=min((x for x in state.running if x > xid), default=state.next_xid))


def snapshot_of(state: Log) -> Snapshot:
    """As the server takes it: a transaction that runs may have an xid of xmax or above, and is not listed then."""
    running = frozenset(xid for xid in state.running if xid < state.xmax)
    return Snapshot(state.xmax, running, state.committed)


def owners(state: Log) -> int:
    """Below which xid every transaction has ended that has drawn a number; odd: just below a snapshot's xmax."""
    drawing = [writer.xid for writer in state.writers if writer.phase == "drawn" and writer.xid is not None]
    return min([*drawing, state.xmax - 1])


def ranked(state: Log) -> Log:
    """The same state with the smallest numbers of transactions that keep their order, and like sequencers in order."""
    head = state.head
    known: set[int] = {state.next_xid, state.xmax, *state.running, *(bound for bound, _ in state.gaps)}
    if head.floor and all(bound >= head.floor for bound, _ in state.gaps):
        # It hides nothing, and no gap will come below it.
        head = head._replace(floor=0)
    head = head._replace(before=_worth_knowing(head.before, state.gaps))
    known.add(head.floor)
    for snapshot in (head.before, *(ticker.snapshot for ticker in state.tickers)):
        if snapshot is not None:
            known.add(snapshot.xmax)
            known |= snapshot.running
    known.update(ticker.ended + ticker.ended % 2 for ticker in state.tickers)
    known.discard(0)
    rank = {xid: 2 * place for place, xid in enumerate(sorted(known), start=1)} | {0: 0}

    def of_snapshot(snapshot: Snapshot | None) -> Snapshot | None:
        if snapshot is None:
            return None
        return Snapshot(rank[snapshot.xmax], frozenset(rank[xid] for xid in snapshot.running), snapshot.visible)

    def of_ticker(ticker: Ticker) -> Ticker:
        if ticker.phase == "idle":
            return ticker
        low = ticker.ended
        ended_ = rank[low + low % 2] - low % 2
        return Ticker(ticker.phase, ended_, rank[ticker.xid], of_snapshot(ticker.snapshot))

    def of_writer(writer: Writer) -> Writer:
        return writer if writer.xid is None else writer._replace(xid=rank[writer.xid])

    return state._replace(
        writers=tuple(map(of_writer, state.writers)),
        stranger=of_writer(state.stranger),
        tickers=tuple(sorted(map(of_ticker, state.tickers), key=lambda ticker: (ticker.phase, ticker.xid))),
        next_xid=rank[state.next_xid],
        xmax=rank[state.xmax],
        head=head._replace(before=of_snapshot(head.before), floor=rank[head.floor]),
        gaps=frozenset((rank[bound], at) for bound, at in state.gaps),
    )


def _worth_knowing(before: Snapshot | None, gaps: Gaps) -> Snapshot | None:
    """What a later tick can make of it: it is compared with the bounds of gaps, and with nothing else."""
    if before is None or not gaps:
        return None
    last = max(bound for bound, _ in gaps)
    return Snapshot(min(before.xmax, last), frozenset(xid for xid in before.running if xid < last))
