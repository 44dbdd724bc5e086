"""Sessions that do nothing but end a transaction on tables in memory.

For tests that publish without a database, and for transactional handlers where there is none.
"""

from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.memory.transaction import ATTRIBUTE, MemoryTransaction


def fake_session() -> AsyncSession:
    """A session that does nothing, for tests that publish; its rollback takes back what was published through it."""
    return cast("AsyncSession", _idle_session(MemoryTransaction(is_hidden=False)))


def fake_sync_session() -> Session:
    """The same, for tests of code without an event loop."""
    transaction = MemoryTransaction(is_hidden=False)
    session = MagicMock(spec=Session)
    session.in_transaction.return_value = True
    setattr(session, ATTRIBUTE, transaction)
    session.commit.side_effect = transaction.commit
    session.rollback.side_effect = transaction.rollback
    session.close.side_effect = transaction.rollback
    return cast("Session", session)


def handler_session() -> AsyncSession:
    """A session for a transactional handler: what is published through it is there after its commit."""
    session = _idle_session(MemoryTransaction(is_hidden=True))
    session.__aenter__.return_value = session
    session.begin = AsyncMock()
    return cast("AsyncSession", session)


def _idle_session(transaction: MemoryTransaction) -> Any:
    session = AsyncMock(spec=AsyncSession)
    session.in_transaction.return_value = True
    # Results are not awaited.
    session.execute.return_value, session.scalars.return_value = MagicMock(), MagicMock()
    setattr(session, ATTRIBUTE, transaction)

    async def commit() -> None:
        transaction.commit()

    async def rollback() -> None:
        transaction.rollback()

    session.commit.side_effect = commit
    session.rollback.side_effect = rollback
    session.close.side_effect = rollback
    return session
