"""A worker that lacks a right sets nothing apart, loses nothing, says so once, and goes on when it may."""

from collections import Counter
from typing import Any

import pytest

from faststream_outbox._internal.events.types import MessageSetApart, OutcomeRefused, StatementFailed
from faststream_outbox.queue import DONE, Claim, Dead, OutboxClient, Worker
from tests.rights.stage import Stage
from tests.waiting import eventually

TRIES = 6
"""More than it takes to set a message apart that cannot be fetched, or an outcome that is refused."""

MISSING = {
    "to count deliveries": "UPDATE (deliveries_count) ON outbox",
    "to finish": "DELETE ON outbox",
    "to write dead letters": "INSERT (error_type) ON outbox_dlq",
    "to know the dead": "SELECT (key) ON outbox_dlq",
    "to look": "SELECT ON outbox",
}


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING.keys())
async def test_nothing_is_parked_or_lost(stage: Stage, missing: str, failed: Counter[str]) -> None:
    reported: list[Any] = []
    handled: set[bytes] = set()

    async def handle(claim: Claim) -> Any:
        handled.add(bytes(claim.payload))
        return Dead() if claim.payload == b"poison" else DONE

    stage.execute("INSERT INTO outbox (queue, payload, key) VALUES ('orders', 'a', NULL), ('orders', 'b', 'k')")
    stage.execute("INSERT INTO outbox (queue, payload) VALUES ('orders', 'poison')")
    engine = stage.engine("outbox_worker")
    client = OutboxClient(engine, stage.table, dlq_table=stage.dlq_table, log=None)
    client.events.subscribe(reported.append, StatementFailed, MessageSetApart, OutcomeRefused)
    options = {"min_fetch_interval": 0.05, "max_fetch_interval": 0.05}
    worker = Worker(engine, stage.table, "orders", handle, client=client, **options)
    with stage.without(f"REVOKE {missing} FROM outbox_worker"):
        await worker.start()
        await eventually(lambda: max(failed.values(), default=0) >= TRIES)
        lost = stage.ask("SELECT payload FROM outbox WHERE next_attempt_at = 'infinity'")
        roles = [event.role for event in reported if isinstance(event, StatementFailed)]
    await eventually(lambda: stage.ask("SELECT count(*) FROM outbox") == [(0,)])
    await worker.stop()
    await engine.dispose()
    assert lost == []
    assert len(roles) == len(reported), reported
    assert roles == list(dict.fromkeys(roles))
    assert handled == {b"a", b"b", b"poison"}
    assert stage.ask("SELECT payload FROM outbox_dlq") == [(b"poison",)]
