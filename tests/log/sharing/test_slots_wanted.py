"""What is wanted of the log: sets of slots as numbers, and filters as the messages see them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.log.sharing.slots import BEGINNING, Span, filters_of, matches, runs, slots_of

URIS = st.text("ab/", max_size=8)


@given(st.sets(st.integers(0, 255)))
def test_runs_are_every_slot_once(slots: set[int]) -> None:
    spans = [Span(slot, slot, BEGINNING, 0) for slot in slots]
    found = list(runs(slots_of(spans)))
    assert [slot for lo, hi in found for slot in range(lo, hi + 1)] == sorted(slots)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


@given(URIS, URIS)
def test_filters_of_a_uri_are_those_that_match_it(uri: str, wanted: str) -> None:
    assert (wanted in filters_of(uri)) == matches(uri, wanted)
