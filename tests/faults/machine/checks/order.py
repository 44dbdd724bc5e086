"""Order per key: in queues, in each group, and in the stream of NATS. Pure; called by `checker`.

Versions of a key count from 1 without a gap, in the order of their commits. Every run of a version must begin after
the one before it was done, or dead, for the first time. That holds for runs whose lease is lost too: they were
claimed when it was their turn.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.runs import FINAL, Run, Story
from tests.faults.machine.stage import BULK, OF_SOUGHT_GROUP, REVIVED
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Look at runs, at effects, and at what NATS has kept."""
    yield from _of_runs(story)
    yield from _of_effects(story, facts)
    yield from _of_stream(story, facts)


def _of_runs(story: Story) -> Iterator[Wrong]:
    by_key: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in story.runs:
        if run.key is not None and run.version is not None and run.place not in (BULK, OF_SOUGHT_GROUP):
            by_key[run.place, run.key].append(run)
    for (place, key), runs in by_key.items():
        first: dict[int, Run] = {}
        for run in runs:
            assert run.version is not None
            if run.end is not None and run.outcome in FINAL:
                known = first.get(run.version)
                if known is None or known.end is None or run.end.at < known.end.at:
                    first[run.version] = run
        for run in runs:
            assert run.version is not None
            if run.version == 1:
                continue
            before = first.get(run.version - 1)
            if before is None or before.end is None or before.end.at > run.start.at:
                detail = f"version {run.version} of {key} began in {place} before version {run.version - 1} had ended"
                shown = [*run.events, *(() if before is None else before.events)]
                yield wrong("out of order", run.id, detail, shown)


def _of_effects(story: Story, facts: Facts) -> Iterator[Wrong]:
    latest: dict[tuple[str, str], int] = {}
    # What died and was replayed comes after those that followed it.
    late = {row.id for row in facts.business if row.place == REVIVED and row.poison}
    for effect in facts.effects:
        # At the far end messages are handled side by side; their order is that of the stream.
        if effect.key is None or effect.version is None or effect.place.startswith("inbox/"):
            continue
        if effect.place == OF_SOUGHT_GROUP or effect.id in late:
            continue
        place = (effect.place, effect.key)
        if effect.version < latest.get(place, 0):
            detail = f"effect of version {effect.version} of {effect.key} in {effect.place} after {latest[place]}"
            yield wrong("out of order", effect.id, detail, story.of_message(effect.id))
        latest[place] = max(effect.version, latest.get(place, 0))


def _of_stream(story: Story, facts: Facts) -> Iterator[Wrong]:
    latest: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, str]] = set()
    for sent in facts.sent or ():
        if sent.key is None or sent.version is None or (sent.place, sent.id) in seen:
            continue
        seen.add((sent.place, sent.id))
        place = (sent.place, sent.key)
        if sent.version < latest.get(place, 0):
            detail = f"version {sent.version} of {sent.key} came to NATS after {latest[place]}"
            yield wrong("out of order", sent.id, detail, story.of_message(sent.id))
        latest[place] = max(sent.version, latest.get(place, 0))
