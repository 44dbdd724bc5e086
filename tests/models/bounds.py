"""What is explored: the models within their bounds, and each mistake that they must find.

`docs/models.md` has the same in words; `python -m tests.models` prints it with the numbers.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.models.explorer import Model
from tests.models.key_model import KeyModel
from tests.models.lease_model import LeaseModel
from tests.models.tick_model import TickModel

SMALL: Final[Mapping[str, Model[Any]]] = {
    "ticks: 2 publishers, a stranger, 2 sequencers": TickModel(writers=2),
    "ticks: 3 publishers, 1 sequencer": TickModel(writers=3, tickers=1, has_stranger=False),
    "leases: 1 message, 2 workers, everything fails": LeaseModel(messages=1),
    "leases: 2 messages, 2 workers, floors": LeaseModel(messages=2, is_calm=True),
    "keys: 3 messages, 2 workers": KeyModel(messages=3),
    "keys: the same without the lock behind a run": KeyModel(messages=3, without_lock_behind=True),
    "keys: 2 messages, runs of 2 and 1, retries": KeyModel(messages=2, runs=(2, 1), retries=True),
    "keys: 2 messages, runs of 2 and 1, leases run out": KeyModel(
        messages=2, runs=(2, 1), is_published=True, expires=True
    ),
    "keys: the same where renewing revives what has run out": KeyModel(
        messages=2, runs=(2, 1), is_published=True, expires=True, revives=True
    ),
}
"""Visited by every run of the tests."""

LARGE: Final[Mapping[str, Model[Any]]] = {
    "ticks: 3 publishers, a stranger, 2 sequencers": TickModel(writers=3),
    "leases: 1 message, 3 workers, everything fails": LeaseModel(messages=1, workers=3),
    "keys: 3 messages, runs of 2 and 1, retries": KeyModel(messages=3, runs=(2, 1), retries=True),
    "keys: 3 messages, runs of 3 and 1, leases run out": KeyModel(
        messages=3, runs=(3, 1), is_published=True, expires=True
    ),
    "keys: 2 messages, runs of 2 and 1, leases run out, renewing goes by when it began": KeyModel(
        messages=2, runs=(2, 1), is_published=True, expires=True, renews_by_old_time=True
    ),
    "keys: 2 messages, runs of 2 and 1, retries, leases run out": KeyModel(
        messages=2, runs=(2, 1), is_published=True, expires=True, retries=True
    ),
    "keys: 2 messages, runs of 2 and 1, leases run out while publishers overlap": KeyModel(
        messages=2, runs=(2, 1), expires=True
    ),
    "keys: 2 messages, 2 workers, lost answers": KeyModel(
        messages=2, is_published=True, expires=True, loses_answers=True
    ),
    "keys: 2 messages, 3 workers": KeyModel(messages=2, runs=(1, 1, 1)),
}
"""Visited by the soak tests."""

_TICKS: dict[str, Any] = {"writers": 2, "has_stranger": False}
_RUNS: dict[str, Any] = {"messages": 2, "runs": (2, 1), "is_published": True, "expires": True}

MISTAKES: Final[Mapping[str, Model[Any]]] = {
    "the number is drawn before the xid": TickModel(**_TICKS, number_before_xid=True),
    "the tick has its xid before the lock": TickModel(**_TICKS, xid_before_lock=True),
    "the bound is the snapshot's xmax": TickModel(**_TICKS, bound_by_xmax=True),
    "the bound does not ask what runs": TickModel(**_TICKS, ignores_running=True),
    "a gap is forgotten before it is read once more": TickModel(**_TICKS, forgets_unread=True),
    "nobody looks who has drawn a number": TickModel(writers=2, lets_owners_be=True),
    "settling does not look at the token": LeaseModel(messages=1, settles_without_token=True),
    "renewing does not look at the token": LeaseModel(messages=1, renews_without_token=True),
    "a handler begins after its deadline": LeaseModel(messages=1, begins_late=True),
    "a claim does not look at leases": LeaseModel(messages=1, claims_what_lives=True),
    "the dead letter is a second statement": LeaseModel(messages=1, buries_in_two_steps=True),
    "a lease does not run out": LeaseModel(messages=1, forgets_unheard_leases=True),
    "a floor without grace and without scans": LeaseModel(messages=2, is_calm=True, floor_without_scan=True),
    "a claim of a key is not asked about again": KeyModel(messages=2, without_asking=True),
    "a claim of a key looks at its head only": KeyModel(messages=2, looks_at_head_only=True),
    "the horizon does not wait for writers": KeyModel(messages=2, without_horizon_of_writers=True),
    "a claim of a key leaves leases behind its run": KeyModel(**_RUNS, leaves_leases=True),
}
"""Each has a counterexample."""
