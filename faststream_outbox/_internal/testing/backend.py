"""A broker's backend on tables in memory, in the place of its database. Made by the test broker.

Queues are read by the engine's own workers, through the client in memory. Topics are handed to subscribers as they are
published, or by the loops of the test broker, so that no subscriber has a worker for them.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from faststream.exceptions import IncorrectState

from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.memory.client import FakeOutboxClient

_NO_GROUPS = (
    "The test broker keeps no groups that operators could change. Look at broker.fake_client.parked, "
    "and put groups elsewhere with broker.fake_client.seek(…)."
)


class MemoryBackend:
    """Queues and topics in memory."""

    reaches_other_brokers = False
    relay_ages = None

    def __init__(self, client: FakeOutboxClient) -> None:
        self._client = client

    @property
    def client(self) -> FakeOutboxClient:
        """The client in memory."""
        return self._client

    @property
    def groups(self) -> NoReturn:
        """Refused: there are none."""
        raise IncorrectState(_NO_GROUPS)

    @property
    def parked(self) -> NoReturn:
        """Refused: `fake_client.parked` has them."""
        raise IncorrectState(_NO_GROUPS)

    def make_topic_worker(
        self, groups: Sequence[Group], handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> None:
        """None: messages of topics come without one."""

    def conflicted(self, *, reads_topic: bool) -> None:
        """Transactions in memory are never in conflict; a test may say that one was."""
        self._client.isolation.doubt()

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Tables in memory are as they should be."""
