"""After the stop nothing is left: leases, connections, tasks, files; and memory did not grow. Pure.

Memory: of a process that lived for two minutes, from its 30th second on. The median of its last third may lie above
that of its first third by a tenth and 8 MB: allocators keep what a fault has needed, and give it back late.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from tests.faults.machine.checks.excuses import start_may_have_failed
from tests.faults.machine.facts import Facts
from tests.faults.machine.history import BEAT, BORN, DIED, ENDED, READY, STOPPED, Event
from tests.faults.machine.runs import Story
from tests.faults.machine.wrong import Wrong, wrong

WARM_SECONDS = 30.0
LONG_SECONDS = 120.0
SHARE, SPARE_KB = 1.10, 8 * 1024


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Look at what is left, and at each process from its beginning to its end."""
    for row in facts.left:
        if row.token is not None:
            yield wrong("lease left", row.id, f"in {row.place}, held by {row.token}")
    for name in facts.owned:
        yield wrong("lease left", name, "a span is still owned")
    for connection in facts.connections:
        yield wrong("connection left", connection, "after everybody had stopped")
    for events in story.by_pid.values():
        for life in lives(events):
            yield from _of_process(life)
    for event in story.events:
        if event.kind == STOPPED and event.data["code"] != 0:
            yield wrong("bad end", f"{event.data['of']} {event.data['child']}", f"code {event.data['code']}", [event])
        if event.kind == DIED and not _could_not_start(story, event):
            name = f"{event.data['of']} {event.data['child']}"
            yield wrong("died", name, f"by itself, with code {event.data['code']}", [event])


def lives(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of one number of a process, by the processes that had it."""
    life: list[Event] = []
    for event in events:
        if event.kind == BORN and life:
            yield life
            life = []
        life.append(event)
    if life:
        yield life


def growth(life: Sequence[Event]) -> tuple[float, float] | None:
    """Kilobytes in the first and in the last third of a long life."""
    beats = [event for event in life if event.kind == BEAT]
    if not beats or beats[-1].seconds - beats[0].seconds < LONG_SECONDS:
        return None
    warm = [event.data["kb"] for event in beats if event.seconds - beats[0].seconds >= WARM_SECONDS]
    third = len(warm) // 3
    return median(warm[:third]), median(warm[-third:])


def _of_process(life: Sequence[Event]) -> Iterator[Wrong]:
    first, last = life[0], life[-1]
    name = f"{first.role} {first.pid}"
    if first.kind == BORN and last.kind == ENDED:
        for what in ("files", "tasks"):
            more = Counter(last.data[what]) - Counter(first.data[what])
            if more:
                yield wrong(f"{what} left", name, ", ".join(f"{each} x{count}" for each, count in more.items()), [last])
    sizes = growth(life)
    if sizes is not None and sizes[1] > sizes[0] * SHARE + SPARE_KB:
        yield wrong("memory grew", name, f"from {sizes[0]:.0f} kB to {sizes[1]:.0f} kB", [first, last])


def _could_not_start(story: Story, died: Event) -> bool:
    """Whether it had not begun yet, and something was in its way; one that has begun never dies by itself."""
    *_, life = lives(story.by_pid.get(died.data["child"], [])) or [[]]
    is_ready = any(event.kind == READY for event in life)
    since = life[0].seconds if life else died.seconds
    return not is_ready and start_may_have_failed(story, since, died.seconds)
