"""A subscriber of `Outbox.run` that takes longer than it may is cancelled and has failed; others go on."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import OutboxMessage
from tests.log.opened import reading
from tests.log.rig import LogRig
from tests.waiting import eventually

SEEN: ContextVar[object] = ContextVar("seen", default=None)


@pytest.mark.parametrize("transactional", [False, True])
async def test_hanging_subscriber_is_parked_and_the_next_message_is_handled(rig: LogRig, transactional: bool) -> None:
    handled: list[Any] = []

    async def handle(message: OutboxMessage, *sessions: Any) -> None:
        for session in sessions:
            await session.execute(text("select 1"))
        assert SEEN.get() is None, "of another message"
        SEEN.set(message.payload)
        if message.payload == "hangs":
            await asyncio.Event().wait()
        handled.append(message.payload)

    await rig.put("k", "hangs")
    await rig.put("other", "a", "b")
    outbox = await rig.another(retry_strategy=NoRetry())
    async with reading(outbox, handle, "g", transactional=transactional, handler_timeout=0.1):
        await eventually(lambda: outbox.parked.list("g"))
        await eventually(lambda: {"a", "b"} <= {*handled})
    (parked,) = await outbox.parked.list("g", "")
    assert (parked.error_type, parked.error_message) == (
        "TimeoutError",
        "The handler did not end within 0.1 s: handler_timeout.",
    )


async def test_limit_that_is_no_time_is_refused(rig: LogRig) -> None:
    async def handle(_: OutboxMessage) -> None: ...

    with pytest.raises(InvalidOption, match="handler_timeout"):
        await rig.outbox.run(handle, "g", handler_timeout=0)
