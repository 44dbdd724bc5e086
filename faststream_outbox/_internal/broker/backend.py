"""Where a broker's messages live, as the rest of the broker sees it; and how another place takes over for a while.

A `Backend` is everything that depends on that place. `database` has the usual one, which the broker makes of its
engine. Endpoints ask the configuration for it whenever they need it and never keep it, so it can be replaced in two
ways: for everybody, by assigning `own_backend` and `producer` of the configuration; or, with `replaced`, for the
running task and the tasks that it starts, while everybody else goes on with the broker's own. What is published by
others meanwhile is then not lost.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from faststream_outbox._internal.broker._faststream import ProducerProto
from faststream_outbox._internal.log.admin.groups import Groups
from faststream_outbox._internal.log.deferral.parked import Parking
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.relay.status import RelayAges


class Backend(Protocol):
    """What keeps messages and hands them to subscribers."""

    @property
    def client(self) -> OutboxClient:
        """The queues' half: workers, sessions of handlers, events."""
        ...

    @property
    def groups(self) -> Groups:
        """Groups of topics, for operators."""
        ...

    @property
    def parked(self) -> Parking:
        """What groups have deferred, for operators."""
        ...

    @property
    def relay_ages(self) -> RelayAges | None:
        """How old what is not relayed yet is; None where relays do not run."""
        ...

    @property
    def reaches_other_brokers(self) -> bool:
        """Whether relays send what it holds, and subscribers that forward consume only while the other brokers run."""
        ...

    def make_topic_worker(
        self, groups: Sequence[Group], handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> LogWorker | None:
        """What reads topics for a subscriber; None where messages come to it without a worker of its own."""
        ...

    def conflicted(self, *, reads_topic: bool) -> None:
        """A transaction of a handler was in conflict with another one: its isolation may be another than was known."""
        ...

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Raise `SchemaMismatch` if the tables are not as they should be."""
        ...


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a task sees in the place of a broker's own."""

    config: object
    backend: Backend
    producer: ProducerProto[Any]


_REPLACEMENTS: ContextVar[tuple[Replacement, ...]] = ContextVar("outbox_replacements", default=())


def replacement_for(config: object) -> Replacement | None:
    """What the running task sees in the place of the configuration's own, if anything."""
    for one in _REPLACEMENTS.get():
        if one.config is config:
            return one
    return None


@contextmanager
def replaced(config: object, backend: Backend, producer: ProducerProto[Any]) -> Generator[None, None, None]:
    """Let the running task and its children use these instead of the configuration's own."""
    before = _REPLACEMENTS.get()
    _REPLACEMENTS.set((*before, Replacement(config, backend, producer)))
    try:
        yield
    finally:
        _REPLACEMENTS.set(before)
