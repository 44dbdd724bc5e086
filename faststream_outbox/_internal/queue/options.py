"""Options of a worker: names, defaults and what cannot work.

Checked when the worker is made, so that the error points at the line that made it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from faststream_outbox._internal.envelope import checked_queue
from faststream_outbox._internal.options import check_choice, check_count, check_seconds
from faststream_outbox._internal.outcomes.outcome import OnUndecided
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY, check_strategy
from faststream_outbox.errors import InvalidOption, InvalidOptionType

OnLeaseLost = Literal["continue", "cancel"]
OnDead = Literal["continue", "block"]
TerminalHook = Callable[[Any], Awaitable[object] | object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker claims and what it does with outcomes."""

    max_workers: int = 1
    fetch_batch_size: int = 10
    min_fetch_interval: float = 1.0
    max_fetch_interval: float = 10.0
    lease_ttl_seconds: float = 60.0
    max_deliveries: int | None = None
    crash_limit: int = 100
    retry_strategy: object = field(default_factory=lambda: DEFAULT_RETRY)
    on_undecided: OnUndecided = "retry"
    handler_timeout: float | None = None
    on_lease_lost: OnLeaseLost = "continue"
    on_dead: OnDead = "continue"
    on_terminal_failure: TerminalHook | None = None
    graceful_timeout: float | None = 15.0
    batch: bool = False
    batch_size: int | None = None
    batch_wait: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_workers", "fetch_batch_size", "crash_limit"):
            check_count(name, getattr(self, name))
        for name in ("max_deliveries", "batch_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("min_fetch_interval", "max_fetch_interval", "lease_ttl_seconds"):
            check_seconds(name, getattr(self, name))
        if self.handler_timeout is not None:
            check_seconds("handler_timeout", self.handler_timeout)
        if self.graceful_timeout is not None:
            check_seconds("graceful_timeout", self.graceful_timeout, zero=True)
        check_seconds("batch_wait", self.batch_wait, zero=True)
        if not self.batch and (self.batch_size is not None or self.batch_wait):
            name = "batch_wait" if self.batch_size is None else "batch_size"
            msg = f"{name} is of a handler that takes a list of messages: say batch=True too, or leave it out."
            raise InvalidOption(msg)
        if self.min_fetch_interval > self.max_fetch_interval:
            msg = (
                f"min_fetch_interval={self.min_fetch_interval} exceeds max_fetch_interval={self.max_fetch_interval}: "
                "the first is where idle polling starts, the second where it ends."
            )
            raise InvalidOption(msg)
        check_choice("on_undecided", self.on_undecided, ("retry", "release", "done", "dead"))
        check_choice("on_lease_lost", self.on_lease_lost, ("continue", "cancel"))
        check_choice("on_dead", self.on_dead, ("continue", "block"))
        check_strategy(self.retry_strategy)

    @property
    def most_per_call(self) -> int:
        """Messages handed to a handler at once."""
        return (self.batch_size or self.fetch_batch_size) if self.batch else 1


def checked_options(options: object) -> WorkerOptions | None:
    """`options` of a worker, if there are any."""
    if options is not None and not isinstance(options, WorkerOptions):
        msg = f"options must be WorkerOptions(…), not a {type(options).__name__}."
        raise InvalidOptionType(msg)
    return options


def checked_queues(queues: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The queue names of a worker, in order; none twice."""
    given: object = queues
    if not isinstance(given, str | list | tuple):
        msg = f"queues must be a name or a list of names, not a {type(given).__name__}."
        raise InvalidOptionType(msg)
    names = tuple(checked_queue(queue) for queue in ([queues] if isinstance(queues, str) else queues))
    if not names:
        msg = "A worker needs at least one queue."
        raise InvalidOption(msg)
    if len(set(names)) != len(names):
        msg = f"A queue is named twice: {names}."
        raise InvalidOption(msg)
    return names
