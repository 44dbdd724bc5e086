"""This package's topics: `Outbox.dispatch`, and the same tables read by hand with bare asyncpg, which is the limit.

It runs in the environment of the benchmark, whose log stage writes the log. A log is written once for each size,
sequenced, and then read by one group after the other.
"""

from collections.abc import AsyncIterator

from contest import Contestant, serve
from sqlalchemy.ext.asyncio import create_async_engine

from bench.log_reading import dispatches, fetches, join_by_hand
from bench.log_stage import LogStage
from faststream_outbox.log import Outbox


class Topics(Contestant):
    """The ordered log of this checkout."""

    packages = ("faststream-outbox", "sqlalchemy", "asyncpg")

    async def open(self) -> None:
        self.engine = create_async_engine(self.dsn)
        self.stage = LogStage(self.dsn.replace("+asyncpg", ""), self.engine)
        self.bare = await self.stage.asyncpg()
        self.logs: dict[int, Outbox] = {}

    async def topic(self, messages: int) -> None:
        """A log of so many messages, in the order of their ticks."""
        if messages in self.logs:
            return
        outbox = await self.stage.log(f"log_{messages}", messages)
        await outbox.client.sequencer.catch_up()
        await join_by_hand(self.bare, outbox.tables.log.name)
        await self.stage.settle()
        self.logs[messages] = outbox

    def read(self, how: str, log: int, messages: int, by: int) -> AsyncIterator[int]:
        """How many each batch had, of so many messages from the beginning of the log of that size."""
        outbox = self.logs[log]
        if how == "by hand":
            return fetches(self.bare, outbox.tables.log.name, messages, by)
        return dispatches(outbox, messages, by)


if __name__ == "__main__":
    serve(Topics)
