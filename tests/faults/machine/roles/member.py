"""The members of a topic's groups: one that handles, and two whose handlers take the transaction.

The group of one of these is sought by an operator. What it has seen is told by its effects, which nobody can commit
whose slots were sought meanwhile.
"""

import os
from typing import Any

from faststream_outbox.annotations import OutboxMessage, OutboxSession
from tests.faults.machine.history import Pen
from tests.faults.machine.part import Part
from tests.faults.machine.roles.application import Application
from tests.faults.machine.roles.run import effect, run
from tests.faults.machine.stage import (
    EXACT_GROUP,
    FACTS,
    OF_EXACT_GROUP,
    OF_PLAIN_GROUP,
    OF_SOUGHT_GROUP,
    PLAIN_GROUP,
    SOUGHT_GROUP,
    Tables,
)

CRASHES = 100
"""Processes are killed on purpose: no message is to blame for it."""


class Topic(Application):
    """An application that reads the topic."""

    def __init__(self, part: Part, pen: Pen) -> None:
        tables = Tables()
        super().__init__(part, pen, tables, log_tables=tables.log)
        self.options = {"crash_limit": CRASHES, "max_workers": 3, **self.options}


class Member(Topic):
    """Handles outside of a transaction."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self.broker.subscriber(topic=FACTS, group=PLAIN_GROUP, **self.options)(self.handle)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage) -> None:
        async with run(self.pen, OF_PLAIN_GROUP, body, msg.raw_message):
            pass


class TransactionalMember(Topic):
    """Handles in the transaction that moves the cursor."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self.broker.subscriber(topic=FACTS, group=EXACT_GROUP, transactional=True, **self.options)(self.handle)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage, session: OutboxSession) -> None:
        async with run(self.pen, OF_EXACT_GROUP, body, msg.raw_message):
            await effect(session, OF_EXACT_GROUP, body, os.getpid(), msg.raw_message)


class SoughtMember(Topic):
    """Handles at once what may come again by the thousand."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self.broker.subscriber(topic=FACTS, group=SOUGHT_GROUP, transactional=True, **self.options)(self.handle)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage, session: OutboxSession) -> None:
        async with run(self.pen, OF_SOUGHT_GROUP, {**body, "seconds": 0.0}, msg.raw_message):
            await effect(session, OF_SOUGHT_GROUP, body, os.getpid(), msg.raw_message)
