"""Whether a transaction sees what others commit meanwhile, and what to do where it does not.

Above READ COMMITTED a transaction fails when it writes a row that somebody else has written since it began,
as a renewal does. So such a transaction locks its row first: whoever renews or claims passes over it.
The level is asked for once and remembered; a conflict makes it unknown again. Used for transactions of handlers.
"""

from collections.abc import Awaitable, Callable

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

CONFLICT = "40001"
READ_COMMITTED = ("read committed", "read uncommitted")
BEGINNINGS = 5
"""How often a transaction is begun that a renewal got in the way of."""


def is_conflict(error: BaseException | None) -> bool:
    """Whether the server could not fit the transaction in with another one."""
    holders = (error, getattr(error, "orig", None))
    return any((getattr(holder, "sqlstate", None) or getattr(holder, "pgcode", None)) == CONFLICT for holder in holders)


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
