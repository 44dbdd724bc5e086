"""Committing a handler's transaction: a COMMIT whose answer was lost is found out about, never guessed.

A connection that breaks while COMMIT is under way leaves nobody knowing. So the question goes to the server, on a
connection of the library's own, until it is answered: what the transaction wrote last is there, or it is not; while
somebody still holds a lock on it, the transaction may yet end either way, and the question is asked again. Used by
both engines, for transactional handlers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import LeaseLost
from faststream_outbox.service import pause_after

LONGEST_PAUSE = 0.5
_BROKEN = ("08", "57P")


class Fate(Enum):
    """What became of a transaction, as far as its traces say."""

    OPEN = "the server has not ended it yet"
    COMMITTED = "what it wrote is there"
    ROLLED_BACK = "everything is as it was before"
    UNKNOWN = "somebody else has taken over since"


async def commit(
    session: AsyncSession, ask: Callable[[], Awaitable[Fate]], tell: Callable[[BaseException], None]
) -> None:
    """Commit, and raise only if that has not come about; errors on the way there are told."""
    try:
        await session.commit()
    except Exception as error:
        if is_answered(error):
            await session.rollback()
        else:
            # Not a rollback: on a connection that does not answer it would wait as the commit did.
            await session.invalidate()
        fate = await _found_out(ask, tell)
        if fate is Fate.ROLLED_BACK:
            raise
        if fate is Fate.UNKNOWN:
            msg = "The answer to a COMMIT was lost, and so was the lease: whoever has it now knows what came about."
            raise LeaseLost(msg) from error
        tell(error)
    except BaseException:
        await session.invalidate()
        raise


async def _found_out(ask: Callable[[], Awaitable[Fate]], tell: Callable[[BaseException], None]) -> Fate:
    tries = 0
    while True:
        tries += 1
        try:
            fate = await ask()
        except Exception as error:  # noqa: BLE001 - told, and asked again: nothing may be written before it is known
            tell(error)
        else:
            if fate is not Fate.OPEN:
                return fate
        await asyncio.sleep(min(LONGEST_PAUSE, pause_after(tries)))


def is_answered(error: BaseException) -> bool:
    """Whether the server itself said so, on a connection that still stands."""
    if getattr(error, "connection_invalidated", False):
        return False
    source: Any = getattr(error, "orig", None) or error
    state = getattr(source, "sqlstate", None) or getattr(source, "pgcode", None)
    return isinstance(state, str) and not state.startswith(_BROKEN)
