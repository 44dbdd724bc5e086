"""The account of a fault test: from what was committed, what ran and how leases changed to what went wrong.

Pure, so that `test_account` can show that each kind of wrong is seen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

FINISHED = ("done", "dead", "settled")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler; without an end if its process was killed before it."""

    message_id: Any
    delivery: int
    pid: int
    key: str | None
    version: int
    acquired_at: datetime
    started: datetime
    ended: datetime | None
    outcome: str | None


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """A row's lease before and after an update, or before its deletion."""

    id: int
    key: str | None
    old_token: UUID | None
    old_at: datetime | None
    new_token: UUID | None
    new_at: datetime | None
    at: datetime


@dataclass(frozen=True, slots=True)
class AnyAccount:
    """Numbers are counts; everything else must be empty."""

    def wrongs(self) -> dict[str, object]:
        """What went wrong, by its name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value and not isinstance(value, int)}

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        numbers = {name: value if isinstance(value, int) else len(value) for name, value in values.items()}
        return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items())


@dataclass(frozen=True, slots=True)
class Account(AnyAccount):
    """What became of everything that was committed to an outbox."""

    committed: int
    handled: int
    dead: int
    runs: int
    taken_over: int
    """Leases that ran out with their holder gone, and went to another."""
    lost: frozenset[Any]
    """Committed, gone from the outbox, and neither handled nor a dead letter."""
    left: frozenset[Any]
    """Still in the outbox."""
    ghosts: frozenset[Any]
    """Handled although never committed."""
    twice: frozenset[Any]
    """Finished in more than one way, or more than once for good."""
    stolen: tuple[LeaseChange, ...]
    """Leases taken from a holder before they had run out."""
    abreast: tuple[LeaseChange, ...]
    """Claims of a message while another one of its key was leased to somebody else."""
    disordered: tuple[Run, ...]
    """Runs that began before the message before them, of the same key, had ended for good."""
    overlapping: tuple[Run, ...]
    """Runs that began while another one of the same message or of the same key was not at its end."""


def account(
    *,
    committed: Set[Any],
    left: Set[Any],
    dead: Sequence[Any],
    effects: Mapping[Any, int],
    with_effects: Set[Any],
    runs: Sequence[Run],
    leases: Sequence[LeaseChange],
    lease_seconds: float,
) -> Account:
    """Draw it up; `with_effects` are the messages whose handler settles with an effect."""
    done = {run.message_id for run in runs if run.outcome == "done"}
    handled = done | set(effects)
    buried = Counter(dead)
    twice = {message for message, times in effects.items() if times != 1}
    twice |= {message for message, times in buried.items() if times > 1 or message in handled}
    twice |= done & with_effects
    ttl = timedelta(seconds=lease_seconds)
    return Account(
        committed=len(committed),
        handled=len(handled & committed),
        dead=len(buried),
        runs=len(runs),
        taken_over=sum(1 for _ in _changed_hands(leases)),
        lost=frozenset(committed - handled - set(buried) - left),
        left=frozenset(left),
        ghosts=frozenset((handled | set(buried) | {run.message_id for run in runs}) - committed),
        twice=frozenset(twice),
        stolen=tuple(_stolen(leases, ttl)),
        abreast=tuple(_abreast(leases, ttl)),
        disordered=tuple(_disordered(runs)),
        overlapping=tuple(_overlapping(runs)),
    )


def held(change: LeaseChange, heard: Set[UUID]) -> LeaseChange:
    """The change as it is for those who heard of their claims: a lease that nobody knows of is none."""
    if change.old_token not in heard:
        change = replace(change, old_token=None, old_at=None)
    if change.new_token not in heard:
        change = replace(change, new_token=None, new_at=None)
    return change


def _changed_hands(leases: Iterable[LeaseChange]) -> Iterable[LeaseChange]:
    for change in leases:
        if change.old_token is not None and change.new_token not in (None, change.old_token):
            yield change


def _stolen(leases: Iterable[LeaseChange], ttl: timedelta) -> Iterable[LeaseChange]:
    for change in _changed_hands(leases):
        assert change.old_at is not None
        assert change.new_at is not None
        if change.new_at < change.old_at + ttl:
            yield change


def _abreast(leases: Iterable[LeaseChange], ttl: timedelta) -> Iterable[LeaseChange]:
    held: dict[str, dict[int, tuple[UUID, datetime]]] = {}
    for change in leases:
        if change.key is None:
            continue
        of_key = held.setdefault(change.key, {})
        of_key.pop(change.id, None)
        if change.new_token is None or change.new_at is None:
            continue
        if any(token != change.new_token and change.new_at < at + ttl for token, at in of_key.values()):
            yield change
        of_key[change.id] = (change.new_token, change.new_at)


def _by_key(runs: Iterable[Run]) -> Iterable[list[Run]]:
    keyed = sorted((run for run in runs if run.key is not None), key=lambda run: (run.key or "", run.started))
    for _, group in groupby(keyed, key=lambda run: run.key):
        yield list(group)


def _disordered(runs: Sequence[Run]) -> Iterable[Run]:
    for of_key in _by_key(runs):
        ends: dict[int, datetime] = {}
        for run in of_key:
            if run.ended is not None and run.outcome in FINISHED:
                ends[run.version] = min(run.ended, ends.get(run.version, run.ended))
        for run in of_key:
            # Versions of a key count from 1 without a gap, in the order of their commits.
            if run.version > 1 and (run.version - 1 not in ends or ends[run.version - 1] > run.started):
                yield run


def _overlapping(runs: Sequence[Run]) -> Iterable[Run]:
    by_message = sorted(runs, key=lambda run: (run.message_id, run.started))
    groups = [list(group) for _, group in groupby(by_message, key=lambda run: run.message_id)]
    for group in (*groups, *_by_key(runs)):
        latest: Run | None = None
        for run in group:
            # A run without an end was cut short by a kill; that its lease was respected is seen in the leases.
            if latest is not None and latest.ended is not None and run.started < latest.ended:
                yield run
            if latest is None or (run.ended or run.started) >= (latest.ended or latest.started):
                latest = run
