"""Claims made by hand, for functions that only look at them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from faststream_outbox.queue import Claim, Worker, WorkerOptions

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def claim_of(*, deliveries: int = 1, attempts: int = 0, claimed_at: float = 0.0, **options: Any) -> Claim:
    """A claim as the driver's row makes it, for a worker with these options."""
    worker = cast("Worker", SimpleNamespace(options=WorkerOptions(**options)))
    row = (
        *(1, "orders", b"body", '{"a": 1}', attempts, deliveries, NOW, NOW, None, None, None),
        *("key", 3, uuid4(), NOW, 2),
    )
    return Claim(row, uuid4(), worker, claimed_at)
