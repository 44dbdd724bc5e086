"""Options of a relay: names, defaults and what cannot work. Checked at the line that registers it."""

from dataclasses import dataclass, field

from faststream_outbox._internal.log.options import MAX_DEFERRED, ReadOptions, Start, check_start
from faststream_outbox._internal.options import check_choice, check_count, check_seconds, checked_flag
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY, check_strategy
from faststream_outbox._internal.queue.options import OnDead, WorkerOptions
from faststream_outbox._internal.relay.transport import Envelope, check_envelope
from faststream_outbox.errors import InvalidOption

CRASH_LIMIT = 100
"""A relay reads no body: that processes died with a message says next to nothing about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay reads, and how much it sends at once."""

    batch_size: int = 500
    max_in_flight: int = 2000
    linger: float = 0.0
    ordered: bool = True
    on_dead: OnDead = "continue"
    retry_strategy: object = field(default_factory=lambda: DEFAULT_RETRY)
    lease_ttl_seconds: float = 60.0
    min_fetch_interval: float = 1.0
    max_fetch_interval: float = 10.0
    start: Start = "earliest"
    max_deferred: int = MAX_DEFERRED
    envelope: Envelope | None = None

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size, most=10_000)
        check_count("max_in_flight", self.max_in_flight, most=1_000_000)
        check_count("max_deferred", self.max_deferred, most=1_000_000)
        if self.max_in_flight < self.batch_size:
            msg = (
                f"max_in_flight={self.max_in_flight} is below batch_size={self.batch_size}: "
                "a batch is sent as one. Lower batch_size too."
            )
            raise InvalidOption(msg)
        check_seconds("linger", self.linger, zero=True)
        for name in ("lease_ttl_seconds", "min_fetch_interval", "max_fetch_interval"):
            check_seconds(name, getattr(self, name))
        checked_flag("ordered", self.ordered)
        check_choice("on_dead", self.on_dead, ("continue", "block"))
        check_start(self.start)
        check_strategy(self.retry_strategy)
        check_envelope(self.envelope)

    @property
    def batches(self) -> int:
        """How many batches are in flight at once."""
        return max(1, min(256, self.max_in_flight // self.batch_size))

    def of_queue(self, graceful_timeout: float | None) -> WorkerOptions:
        """The options of a queue's worker."""
        return WorkerOptions(
            max_workers=self.batches,
            fetch_batch_size=self.batch_size,
            batch=True,
            batch_size=self.batch_size,
            batch_wait=self.linger,
            min_fetch_interval=self.min_fetch_interval,
            max_fetch_interval=self.max_fetch_interval,
            lease_ttl_seconds=self.lease_ttl_seconds,
            crash_limit=CRASH_LIMIT,
            retry_strategy=self.retry_strategy,
            on_dead=self.on_dead,
            graceful_timeout=graceful_timeout,
        )

    def of_topic(self) -> ReadOptions:
        """The options of a topic's reader."""
        return ReadOptions(
            batch_size=self.batch_size,
            lease_ttl_seconds=self.lease_ttl_seconds,
            retry_strategy=self.retry_strategy,
            on_parked="hold_key" if self.on_dead == "block" else "skip",
            poll_interval=self.min_fetch_interval,
            crash_limit=CRASH_LIMIT,
            start=self.start,
            max_deferred=self.max_deferred,
        )
