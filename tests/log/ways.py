"""Every kind of session that messages of the log can be published through."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import URL

from faststream_outbox.log import Outbox, OutboxMessage, Token
from tests.publish.ways import KINDS, WAYS, SyncWay, Way

__all__ = ["KINDS", "WAYS", "LogWay"]


class LogWay:
    """An open session of the caller's, to publish to a log through."""

    def __init__(self, way: Way, outbox: Outbox) -> None:
        self._way = way
        self._outbox = outbox
        self.begin, self.commit, self.rollback, self.execute = way.begin, way.commit, way.rollback, way.execute

    @classmethod
    @asynccontextmanager
    async def opened(cls, kind: str, url: URL, outbox: Outbox) -> AsyncGenerator["LogWay", None]:
        async with WAYS[kind](url, outbox.tables.log) as way:
            yield cls(way, outbox)

    async def publish(self, *messages: OutboxMessage, **options: Any) -> Token:
        if isinstance(self._way, SyncWay):
            return self._outbox.publish_sync(self._way.session, *messages, **options)
        return await self._outbox.publish(self._way.session, *messages, **options)
