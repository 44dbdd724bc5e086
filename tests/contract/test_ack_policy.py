"""Ack policies: who decides what becomes of a message."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from faststream import AckPolicy
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox.annotations import OutboxMessage
from tests.contract.outside import App, Row
from tests.contract.running import SNIPPET, line_of, run
from tests.waiting import eventually

MANUAL = """\
from faststream import AckPolicy


@broker.subscriber("audit", ack_policy=AckPolicy.MANUAL)
async def handle(msg, body: dict) -> None:
    try:
        await write_audit(body)
        await msg.ack()
    except TransientError:
        await msg.nack()    # retry
    except PermanentError:
        await msg.reject()  # terminal delete
"""

# A parameter without an annotation is a field of the body to FastStream.
ANNOTATED = MANUAL.replace("msg,", "msg: OutboxMessage,")


class TransientError(Exception):
    pass


class PermanentError(Exception):
    pass


class Audit:
    """What the application writes, or fails to write."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.bodies: list[Any] = []
        self.asked = False

    async def write(self, body: Any) -> None:
        self.asked = True
        if self.error is not None:
            raise self.error
        self.bodies.append(body)


def names(broker: OutboxBroker, audit: Audit) -> dict[str, Any]:
    return {
        "broker": broker,
        "write_audit": audit.write,
        "OutboxMessage": OutboxMessage,
        "TransientError": TransientError,
        "PermanentError": PermanentError,
    }


async def deliver_once(app: App, begun: Callable[[], Any], queue: str = "orders") -> Sequence[Row]:
    """Publish, let one attempt begin, and stop when it has been settled; what is left."""
    await app.publish({"a": 1}, queue=queue)
    await app.broker.start()
    await eventually(begun)
    await app.broker.stop()
    return app.rows()


async def run_manual(app: App, audit: Audit) -> Sequence[Row]:
    await run(ANNOTATED, names(app.broker, audit))
    return await deliver_once(app, lambda: audit.asked, "audit")


async def fail_under(app: App, **options: Any) -> Sequence[Row]:
    bodies = app.collects(error=ValueError("out of stock"), **options)
    return await deliver_once(app, lambda: bodies)


async def test_manual_ack_ends_the_message(app: App) -> None:
    audit = Audit()
    assert await run_manual(app, audit) == []
    assert audit.bodies == [{"a": 1}]


async def test_manual_nack_retries_the_message(app: App) -> None:
    rows = await run_manual(app, Audit(TransientError()))
    assert [(row["attempts_count"], row["acquired_token"]) for row in rows] == [(1, None)]


async def test_manual_reject_deletes_the_message(app: App) -> None:
    assert await run_manual(app, Audit(PermanentError())) == []


async def test_manual_handler_with_a_bare_msg_is_warned_about_at_its_line(unconnected: OutboxBroker) -> None:
    with pytest.warns(UserWarning, match="msg: OutboxMessage") as caught:
        await run(MANUAL, names(unconnected, Audit()))
    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (SNIPPET, line_of(MANUAL, "@broker.subscriber"))
    ]


async def test_manual_handler_with_an_annotated_msg_is_not_warned_about(unconnected: OutboxBroker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(ANNOTATED, names(unconnected, Audit()))


def test_the_default_is_nack_on_error(unconnected: OutboxBroker) -> None:
    assert unconnected.subscriber("orders").ack_policy is AckPolicy.NACK_ON_ERROR


async def test_nack_on_error_asks_the_retry_strategy(app: App) -> None:
    (row,) = await fail_under(app, retry_strategy=ConstantRetry(delay_seconds=77.0))
    assert (row["next_attempt_at"] - row["last_attempt_at"]).total_seconds() == pytest.approx(77.0, abs=1.0)


async def test_nack_on_error_drops_when_the_strategy_has_had_enough(app: App) -> None:
    strategy = ConstantRetry(delay_seconds=1.0, max_attempts=1)
    assert await fail_under(app, retry_strategy=strategy) == []


async def test_reject_on_error_deletes_at_the_first_failure(app: App) -> None:
    assert await fail_under(app, ack_policy=AckPolicy.REJECT_ON_ERROR) == []


@pytest.mark.filterwarnings("ignore:REJECT_ON_ERROR never retries")
async def test_reject_on_error_ignores_the_retry_strategy(app: App) -> None:
    strategy = ConstantRetry(delay_seconds=1.0)
    rows = await fail_under(app, ack_policy=AckPolicy.REJECT_ON_ERROR, retry_strategy=strategy)
    assert rows == []


def test_ack_first_is_refused_at_registration(unconnected: OutboxBroker) -> None:
    with pytest.raises(ValueError, match="ACK_FIRST"):
        unconnected.subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)


def test_ack_first_as_the_brokers_policy_is_refused_too(engine: AsyncEngine, table: Table) -> None:
    with pytest.raises(ValueError, match="ACK_FIRST"):
        OutboxBroker(engine, outbox_table=table, ack_policy=AckPolicy.ACK_FIRST).subscriber("orders")
