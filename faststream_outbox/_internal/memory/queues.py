"""The queues in memory: every statement of the queue engine, on one table and its dead letters.

One contract suite asks this and PostgreSQL the same questions. Used by the client in memory.
"""

from faststream_outbox._internal.memory.claiming import ClaimStatements
from faststream_outbox._internal.memory.dead_letters import DeadLetterStatements
from faststream_outbox._internal.memory.publishing import PublishStatements
from faststream_outbox._internal.memory.settling import SettleStatements


class MemoryQueues(PublishStatements, ClaimStatements, SettleStatements, DeadLetterStatements):
    """The rows of an outbox, and its dead letters."""
