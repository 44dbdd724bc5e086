"""The options of `subscriber()` and `publisher()`, for whatever passes them on: routes and FastAPI's router.

What each means, and its default, stands at `OutboxBroker.subscriber` and `OutboxBroker.publisher`. A test holds these
names and types to theirs, so that an option is declared there and here and nowhere else.
"""

from typing import Any, TypedDict

from faststream import AckPolicy

from faststream_outbox._internal.broker._faststream import CodecProto, CustomCallable
from faststream_outbox._internal.log.options import Start
from faststream_outbox._internal.outcomes.outcome import OnUndecided
from faststream_outbox._internal.outcomes.retry import RetryStrategyProto
from faststream_outbox._internal.queue.options import OnDead, OnLeaseLost, TerminalHook


class SubscriberOptions(TypedDict, total=False):
    """All of `subscriber()` but its queues and its dependencies, which FastAPI has its own kind of."""

    topic: str | list[str] | tuple[str, ...] | None
    group: str | None
    start: Start
    max_deferred: int
    max_workers: int
    retry_strategy: RetryStrategyProto | None
    fetch_batch_size: int
    min_fetch_interval: float
    max_fetch_interval: float
    lease_ttl_seconds: float
    max_deliveries: int | None
    crash_limit: int | None
    terminal_flush_batch_size: int
    batch: bool
    batch_size: int | None
    batch_wait: float
    transactional: bool
    on_dead: OnDead
    handler_timeout: float | None
    on_lease_lost: OnLeaseLost
    on_undecided: OnUndecided
    on_terminal_failure: TerminalHook | None
    propagate_inbound_headers: bool
    ack_policy: AckPolicy | None
    no_reply: bool
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    persistent: bool
    title: str | None
    description: str | None
    title_: str | None
    description_: str | None
    include_in_schema: bool


class PublisherOptions(TypedDict, total=False):
    """All of `publisher()` but its queue."""

    topic: str | None
    headers: dict[str, Any] | None
    reply_to: str
    key: str | None
    priority: int
    persistent: bool
    title: str | None
    description: str | None
    schema: Any | None
    include_in_schema: bool
