"""Waves: of each key one after the other, and nothing of it behind one that was not taken."""

from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.relay.line import Waves

KEYS = st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=20)


def test_keys_go_side_by_side_and_their_messages_one_after_the_other() -> None:
    waves = Waves(["a", "a", "b", None, None, "a"])
    assert [waves.next(), waves.next(), waves.next(), waves.next()] == [[0, 2, 3, 4], [1], [5], []]


def test_a_transport_that_keeps_the_order_gets_all() -> None:
    waves = Waves(["a", "a", "b", None], whole=True)
    assert [waves.next(), waves.next()] == [[0, 1, 2, 3], []]


def test_a_key_stops_at_what_was_not_taken_and_goes_on_from_there() -> None:
    waves = Waves(["a", "a", "b", "b"])
    waves.next()
    waves.hold([0])
    assert [waves.next(), waves.next()] == [[3], []]
    waves.resume()
    assert [waves.next(), waves.next(), waves.next()] == [[0], [1], []]


def test_a_run_that_was_not_taken_comes_again_in_its_order() -> None:
    waves = Waves(["a", "a", "a", None], whole=True)
    waves.next()
    waves.hold([1, 2])
    waves.resume()
    assert waves.next() == [1, 2]


def test_nothing_follows_where_a_key_has_ended() -> None:
    waves = Waves(["a", "a", "b"])
    waves.next()
    waves.end(0)
    waves.resume()
    assert waves.next() == []


@given(keys=KEYS, fates=st.lists(st.sampled_from(["sent", "missed", "end"]), max_size=60), whole=st.booleans())
def test_order_holds_whatever_becomes_of_messages(keys: list[str | None], fates: list[str], whole: bool) -> None:
    waves = Waves(keys, whole=whole)
    answered: list[int] = []
    ended: set[str | None] = set()
    fate = iter(fates)
    for _ in range(len(fates) + len(keys) + 1):
        wave = waves.next()
        if not wave:
            waves.resume()
            wave = waves.next()
        assert wave == sorted(wave)
        if not whole:
            with_key = [keys[place] for place in wave if keys[place] is not None]
            assert len(with_key) == len(set(with_key))
        missed: set[str | int] = set()
        held: list[int] = []
        for place in wave:
            key = keys[place]
            lane: str | int = place if key is None else key
            assert key is None or key not in ended or whole
            fallen = lane in missed
            match "missed" if fallen else next(fate, "sent"):
                case "missed":
                    missed.add(lane)
                    held.append(place)
                case "end" if not whole:
                    answered.append(place)
                    ended.add(key)
                    waves.end(place)
                case _:
                    answered.append(place)
        waves.hold(held)
    assert len(answered) == len(set(answered))
    for key in {"a", "b", "c"}:
        of_key = [place for place in answered if keys[place] == key]
        expected = [place for place, its in enumerate(keys) if its == key]
        assert of_key == (expected[: len(of_key)] if key in ended else expected)
