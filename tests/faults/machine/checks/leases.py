"""Nothing is handled twice while its lease lives, and a lease lives as long as its handler. Pure; called by `checker`.

The leases are those of the rows' own history, which triggers keep. Who wrote a change is known by the worker id in
the name of the connection: tokens and owners begin with it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.machine.checks.excuses import renewal_may_have_failed
from tests.faults.machine.facts import Facts, Lease
from tests.faults.machine.runs import Run, Story, awake
from tests.faults.machine.stage import SOUGHT_GROUP
from tests.faults.machine.wrong import Wrong, wrong

ID_DIGITS = 8
"""Of a token: the worker id that it begins with."""
_NAME = re.compile(r"outbox ([0-9a-f]{8}) (\w+) ")
AWAKE = 0.4
"""A process that slept for less than this part of its lease had the time to renew it, which is due after a third."""


def writer(who: str) -> str | None:
    """The worker id of whoever wrote a change, if it was a connection of the package's own."""
    found = _NAME.match(who)
    return None if found is None else found[1]


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Look at every change of a lease, and at runs that overlap."""
    yield from _stolen(story, facts)
    yield from _by_strangers(story, facts)
    yield from _abreast(story, facts)
    yield from _not_renewed(story, facts)
    yield from _overlapping(story)
    yield from _spans(facts)


class _Nobody:
    """Tokens under which no handler ever ran."""

    def __init__(self, heard: set[str]) -> None:
        self._heard = heard

    def __contains__(self, token: object) -> bool:
        return token not in self._heard


def _stolen(story: Story, facts: Facts) -> Iterator[Wrong]:
    unheard = _unheard(story)
    for change in facts.leases:
        if change.old_token is None or change.new_token in (None, change.old_token):
            continue
        assert change.new_token is not None
        assert change.old_at is not None
        assert change.new_at is not None
        is_its_own = change.old_token[:ID_DIGITS] == change.new_token[:ID_DIGITS] and change.old_token in unheard
        if change.new_at < change.old_at + facts.lease_seconds and not is_its_own:
            age = change.new_at - change.old_at
            detail = f"taken from {change.old_token} by {change.new_token} when its lease was {age:.3f} s old"
            yield wrong("lease stolen", change.id, detail, story.of_message(change.id))


def _unheard(story: Story) -> _Nobody:
    """A claim whose answer was lost delivered nothing: whoever sent it may take the messages again at once."""
    return _Nobody({run.token for run in story.runs if run.token})


def _by_strangers(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Only the holder settles, renews and gives back; whoever takes a key ends leases of it that have run out."""
    for change in facts.leases:
        who = writer(change.who)
        if who is None or change.old_token is None or change.new_token not in (None, change.old_token):
            continue
        is_over = change.old_at is not None and change.at >= change.old_at + facts.lease_seconds
        is_ended = is_over and change.key is not None and change.new_token is None and not change.is_gone
        if not change.old_token.startswith(who) and not is_ended:
            what = "deleted" if change.is_gone else "given back" if change.new_token is None else "renewed"
            detail = f"{what} by {change.who!r} while {change.old_token} held it"
            yield wrong("settled by a stranger", change.id, detail, story.of_message(change.id))


def _abreast(story: Story, facts: Facts) -> Iterator[Wrong]:
    """No two messages of a key are leased to two holders."""
    held: dict[tuple[str, str], dict[int, tuple[str, float]]] = defaultdict(dict)
    unheard = _unheard(story)
    for change in facts.leases:
        if change.key is None:
            continue
        of_key = held[change.place, change.key]
        of_key.pop(change.row, None)
        if change.new_token is None or change.new_at is None:
            continue
        for row, (token, at) in of_key.items():
            if token == change.new_token or token in unheard or change.new_token in unheard:
                continue
            if change.new_at < at + facts.lease_seconds:
                detail = f"claimed by {change.new_token} while row {row} of key {change.key} was leased to {token}"
                yield wrong("key abreast", change.id, detail, story.of_message(change.id))
        of_key[change.row] = (change.new_token, change.new_at)


def _not_renewed(story: Story, facts: Facts) -> Iterator[Wrong]:
    """A lease that ran out under a handler, although its process was awake and nothing was broken."""
    runs = {run.token: run for run in story.runs if run.token is not None}
    by_run = {(run.token, run.id): run for run in story.runs}
    for change in facts.leases:
        if change.old_token not in runs or change.new_token in (None, change.old_token):
            continue
        run = by_run.get((change.old_token, change.id))
        assert change.old_at is not None
        if run is None or not _was_running(run, change, facts):
            continue
        since, until = change.old_at - facts.offset, change.at - facts.offset
        if awake(story, run.start.pid, since, until) > AWAKE * facts.lease_seconds:
            continue
        if renewal_may_have_failed(story, pid=run.start.pid, row=change.row, since=since, until=until):
            continue
        detail = f"the lease {change.old_token} ran out while its handler ran, and nothing was wrong"
        yield wrong("not renewed", change.id, detail, story.of_message(change.id))


def _was_running(run: Run, change: Lease, facts: Facts) -> bool:
    taken = change.at - facts.offset
    return run.start.seconds < taken and (run.end is not None and run.end.seconds > taken)


def _overlapping(story: Story) -> Iterator[Wrong]:
    """Two runs of one message at once under one lease.

    Members of a topic say no token: one that lost its slots to another of its process may still be in a handler.
    """
    by_message: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in story.runs:
        if run.token is not None:
            by_message[run.id, run.place, run.token].append(run)
    for runs in by_message.values():
        for one, other in pairwise(sorted(runs, key=lambda run: run.start.at)):
            if one.end is None or one.end.at <= other.start.at:
                continue
            yield wrong("twice at once", one.id, f"two runs at once in {one.place}", [*one.events, *other.events])


def _spans(facts: Facts) -> Iterator[Wrong]:
    """A span is taken when its lease is over, moved by its owner under its epoch, and never back but by a seek."""
    for change in facts.spans:
        name = f"{change.group} slots from {change.lo}"
        who = writer(change.who)
        if change.old_owner is not None and change.new_owner not in (None, change.old_owner):
            assert change.old_until is not None
            if change.at < change.old_until:
                detail = f"taken from {change.old_owner} {change.old_until - change.at:.3f} s before its lease ended"
                yield wrong("span stolen", name, detail)
        is_sought = change.group == SOUGHT_GROUP and who is None
        if change.new_cursor < change.old_cursor and not is_sought:
            yield wrong("cursor moved back", name, f"from {change.old_cursor} to {change.new_cursor} by {change.who!r}")
        elif (
            change.new_cursor != change.old_cursor and who is not None and not (change.old_owner or "").startswith(who)
        ):
            detail = f"to {change.new_cursor} by {change.who!r}, while {change.old_owner} owned it"
            yield wrong("cursor moved by a stranger", name, detail)
