"""A group that is sought: after each seek it sees what stands behind the place, in order, once, and leaves nothing out.

Effects of the group and seeks are numbered by one sequence, and a seek waits for the spans: whoever read before it
can commit nothing after it. So the effects between two seeks are one reading. In it the versions of a key ascend, and
a version is left out only if it is poison or stands before the place. A reading that a seek ends may end anywhere; the
last one goes to the end of the topic. Pure; called by `checker`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.faults.machine.facts import Business, Effect, Facts
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import FACTS, OF_SOUGHT_GROUP
from tests.faults.machine.wrong import Wrong, wrong

Place = tuple[int, int]
BEGINNING: Place = (0, 0)


class _Reading:
    """What was seen since a seek to `place`, by key."""

    def __init__(self, place: Place, stands: Mapping[str, Place], keys: Mapping[str, Sequence[Business]]) -> None:
        self._place = place
        self._stands = stands
        self._keys = keys
        self.latest: dict[str, int] = {}

    def is_ahead(self, row: Business) -> bool:
        """Whether it stands behind the place that was sought."""
        return row.id in self._stands and self._stands[row.id] > self._place

    def left_out(self, key: str, until: int) -> Iterator[Business]:
        """Healthy messages below a version that should have come before it; seeing it says so of them once."""
        for row in reversed(self._keys.get(key, ())[self.latest.get(key, 0) : until - 1]):
            if not self.is_ahead(row):
                return
            if not row.poison:
                yield row


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Follow each reading, and see that the last one is complete."""
    if facts.places is not None and OF_SOUGHT_GROUP not in facts.places:
        return
    stands = {row.id: (row.tick, row.position) for row in facts.stands}
    found: dict[str, list[Business]] = defaultdict(list)
    for row in facts.business:
        if row.place == FACTS and row.key is not None:
            found[row.key].append(row)
    keys = {key: sorted(rows, key=lambda row: row.version or 0) for key, rows in found.items()}
    reading = _Reading(BEGINNING, stands, keys)
    seeks = list(facts.seeks)
    for effect in facts.effects:
        if effect.place != OF_SOUGHT_GROUP or effect.key is None or effect.version is None:
            continue
        while seeks and seeks[0].seq < effect.seq:
            seek = seeks.pop(0)
            reading = _Reading((seek.tick, seek.position), stands, keys)
        yield from _seen(story, reading, effect, effect.key, effect.version)
    if seeks:
        reading = _Reading((seeks[-1].tick, seeks[-1].position), stands, keys)
    for key, rows in keys.items():
        for row in reading.left_out(key, len(rows) + 1):
            yield wrong("lost", row.id, f"not seen by {OF_SOUGHT_GROUP} to the end", story.of_message(row.id))
    buried = {letter.id for letter in facts.letters if letter.place == OF_SOUGHT_GROUP}
    for row in (row for rows in keys.values() for row in rows if row.poison):
        if reading.is_ahead(row) and row.id not in buried:
            yield wrong("lost", row.id, f"poison, and not parked by {OF_SOUGHT_GROUP}", story.of_message(row.id))


def _seen(story: Story, reading: _Reading, effect: Effect, key: str, version: int) -> Iterator[Wrong]:
    before = reading.latest.get(key, 0)
    if version == before:
        detail = f"two effects in {OF_SOUGHT_GROUP} without a seek between them"
        yield wrong("effect doubled", effect.id, detail, story.of_message(effect.id))
    elif version < before:
        detail = f"version {version} of {key} in {OF_SOUGHT_GROUP} after {before}, without a seek between them"
        yield wrong("out of order", effect.id, detail, story.of_message(effect.id))
    for row in reading.left_out(key, version):
        detail = f"{OF_SOUGHT_GROUP} went from version {before} of {key} to {version}"
        yield wrong("lost", row.id, detail, story.of_message(row.id))
    reading.latest[key] = max(before, version)
