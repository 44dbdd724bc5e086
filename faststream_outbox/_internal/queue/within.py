"""Claims in a transaction of the application's: what is asked of them there, and what is said of one that is gone.

Used by the client, for handlers that end their messages with their own commit.
"""

from collections.abc import Sequence
from typing import Any

from faststream_outbox._internal.connections.caller import CallerConnection
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.sql.rows import column
from faststream_outbox.errors import LeaseLost

MOST_AT_ONCE = 500
"""Messages of a statement in a handler's transaction: for many more, PostgreSQL would keep a plan made for others."""


async def named_in(opened: CallerConnection, name: str, claims: Sequence[Claim]) -> set[int]:
    """The ids that a statement on the application's connection returns of these claims."""
    found: set[int] = set()
    for start in range(0, len(claims), MOST_AT_ONCE):
        values = leases_of(claims[start : start + MOST_AT_ONCE])
        found.update(column(await opened.fetch(opened.sql("settle", name), values)))
    return found


def leases_of(claims: Sequence[Claim]) -> dict[str, list[Any]]:
    """Ids and tokens, as parameters."""
    return {
        "ids": [claim.id for claim in claims],
        "tokens": [claim.acquired_token for claim in claims],
    }


def refuse_lost(claims: Sequence[Claim]) -> None:
    """Raise `LeaseLost` of the first of these, if there is one."""
    for claim in claims:
        msg = f"The lease of message {claim.id} of {claim.queue!r} is gone; roll this transaction back."
        raise LeaseLost(msg)
