"""Claims made by hand, for functions that only look at them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from faststream_outbox._internal.sql.queue_rows import ClaimedRow
from faststream_outbox.queue import Claim, Worker, WorkerOptions

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def claim_of(*, deliveries: int = 1, attempts: int = 0, claimed_at: float = 0.0, **options: Any) -> Claim:
    """A claim of a worker with these options."""
    worker = cast("Worker", SimpleNamespace(options=WorkerOptions(**options)))
    row = ClaimedRow(
        id=1,
        queue="orders",
        payload=b"body",
        headers='{"a": 1}',
        attempts_count=attempts,
        deliveries_count=deliveries,
        created_at=NOW,
        next_attempt_at=NOW,
        first_attempt_at=None,
        last_attempt_at=None,
        timer_id=None,
        key="key",
        priority=3,
        message_id=uuid4(),
        acquired_at=NOW,
        next_id=2,
    )
    return Claim(row, uuid4(), worker, claimed_at)
