"""A message that was claimed too often is not started again."""

from faststream_outbox._internal.queue.attempt import overdelivered
from faststream_outbox.queue import Dead
from tests.cases import each
from tests.queue.claims import claim_of


def verdict(deliveries: int, attempts: int, **options: int) -> Dead | None:
    claim = claim_of(deliveries=deliveries, attempts=attempts, **options)
    return overdelivered(claim, claim.worker.options)


class TestMaxDeliveries:
    def test_does_not_exist_by_default(self) -> None:
        assert verdict(10_000, 9_999) is None

    def test_allows_as_many_deliveries_as_it_says(self) -> None:
        assert verdict(3, 2, max_deliveries=3) is None

    def test_ends_the_message_on_the_claim_after_that(self) -> None:
        assert verdict(4, 3, max_deliveries=3) == Dead("max_deliveries")

    def test_counts_deliveries_without_an_outcome_too(self) -> None:
        assert verdict(4, 0, max_deliveries=3) == Dead("max_deliveries")


class TestCrashLimit:
    def test_is_a_hundred_by_default(self) -> None:
        assert [verdict(deliveries, 0) for deliveries in (100, 101)] == [None, Dead("crash_loop")]

    @each(("deliveries", "expected"), [(3, None), (4, Dead("crash_loop"))])
    def test_counts_deliveries_without_an_outcome(self, deliveries: int, expected: Dead | None) -> None:
        assert verdict(deliveries, 0, crash_limit=3) == expected

    def test_does_not_count_attempts_with_an_outcome(self) -> None:
        assert verdict(500, 499, crash_limit=3) is None

    def test_comes_after_max_deliveries(self) -> None:
        assert verdict(9, 0, crash_limit=3, max_deliveries=3) == Dead("max_deliveries")
