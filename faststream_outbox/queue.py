"""The queue engine: each message is handled by one of many workers, with leases, retries and dead letters.

Usable without FastStream: `Worker(engine, table, queues, handle)` and `publish`. The broker stands on it.
"""

from faststream_outbox._internal.outcomes.outcome import (
    DONE,
    RELEASE,
    SETTLED,
    Dead,
    Done,
    Outcome,
    Release,
    Retry,
    Settled,
    Undecided,
)
from faststream_outbox._internal.outcomes.retry import (
    ConstantRetry,
    ExponentialRetry,
    LinearRetry,
    NoRetry,
    RetryStrategyProto,
)
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.dead_letters import DeadLetter, DeadLetters, ErrorGroup, Replay, Selection
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.pause import pause, paused, resume
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.wakeup.wakeups import NotifyMode

__all__ = [
    "DONE",
    "RELEASE",
    "SETTLED",
    "Claim",
    "ConstantRetry",
    "Dead",
    "DeadLetter",
    "DeadLetters",
    "Done",
    "ErrorGroup",
    "ExponentialRetry",
    "LinearRetry",
    "NoRetry",
    "NotifyMode",
    "OutboxClient",
    "Outcome",
    "Release",
    "Replay",
    "Retry",
    "RetryStrategyProto",
    "Selection",
    "Settled",
    "Undecided",
    "Worker",
    "WorkerOptions",
    "pause",
    "paused",
    "resume",
]
