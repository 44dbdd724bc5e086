"""Transactions of handlers: whether they see what others commit meanwhile, how they begin, and how they end.

Above READ COMMITTED a transaction fails when it writes a row that somebody else has written since it began,
as a renewal does. So such a transaction locks its row first: whoever renews or claims passes over it.
The level is asked for once and remembered; a conflict makes it unknown again.

A COMMIT whose answer was lost is found out about, never guessed. A connection that breaks while COMMIT is under way
leaves nobody knowing. So the question goes to the server, on a connection of the library's own, until it is answered:
what the transaction wrote last is there, or it is not; while the transaction still holds its locks, it may yet end
either way, and the question is asked again. Used by both engines and by the inbox.
"""

from collections.abc import Awaitable, Callable
from enum import Enum

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.cause import is_answered, is_conflict
from faststream_outbox._internal.service import retrying
from faststream_outbox.errors import LeaseLost

READ_COMMITTED = ("read committed", "read uncommitted")
BEGINNINGS = 5
"""How often a transaction is begun that a renewal got in the way of."""


async def begin(session: AsyncSession, lock: Callable[[], Awaitable[object]]) -> None:
    """Begin a transaction whose first statement is `lock`."""
    for left in reversed(range(BEGINNINGS)):
        await session.begin()
        try:
            await lock()
        except DBAPIError as error:
            # A renewal came in between: nothing has been done yet, so begin again.
            if not left or not is_conflict(error):
                raise
            await session.rollback()
        else:
            return


class Isolation:
    """What is known of the transactions of one engine."""

    __slots__ = ("_is_strict",)

    def __init__(self) -> None:
        self._is_strict: bool | None = None

    async def is_strict(self, session: AsyncSession) -> bool:
        """Whether the session's transaction is REPEATABLE READ or SERIALIZABLE; asks its server if that is unknown."""
        if self._is_strict is None:
            level = await session.scalar(text("show transaction_isolation"))
            self._is_strict = level not in READ_COMMITTED
        return self._is_strict

    def doubt(self) -> None:
        """Ask again: there was a conflict, so the level may have been changed."""
        self._is_strict = None


LONGEST_PAUSE = 0.5


class _StillOpen(Exception):
    """The transaction may yet end either way."""


class Fate(Enum):
    """What became of a transaction, as far as its traces say."""

    OPEN = "the server has not ended it yet"
    COMMITTED = "what it wrote is there"
    ROLLED_BACK = "everything is as it was before"
    UNKNOWN = "somebody else has taken over since"


async def commit(
    session: AsyncSession, ask: Callable[[], Awaitable[Fate]], tell: Callable[[BaseException], None]
) -> None:
    """Commit, and raise only if the transaction was not committed; errors on the way are passed to `tell`."""
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
            msg = "The answer to a COMMIT was lost, and so was the lease: whoever has it now knows what became of it."
            raise LeaseLost(msg) from error
        tell(error)
    except BaseException:
        await session.invalidate()
        raise


async def _found_out(ask: Callable[[], Awaitable[Fate]], tell: Callable[[BaseException], None]) -> Fate:
    """Ask until there is an answer: nothing may be written before it is known."""

    async def decided() -> Fate:
        fate = await ask()
        if fate is Fate.OPEN:
            raise _StillOpen
        return fate

    def failed(error: Exception, _: int) -> None:
        if not isinstance(error, _StillOpen):
            tell(error)

    return await retrying(decided, failed, longest_pause=LONGEST_PAUSE)
