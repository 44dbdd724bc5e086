"""What there is to look at: the clients of both engines, and the relays. Brokers, clients and `Outbox` have some."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.service import Service
from faststream_outbox.errors import InvalidOptionType


class RelayLike(Protocol):
    """As much of a relay as is looked at."""

    name: str

    @property
    def is_degraded(self) -> bool:
        """Whether a broker that it sends to does not answer, or was not started."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process runs. `relays` are those of a broker."""

    client: OutboxClient | None = None
    log: LogClient | None = None
    relays: Callable[[], Sequence[RelayLike]] = tuple

    @property
    def connections(self) -> Iterator[DedicatedConnection]:
        """Connections of the loops."""
        for part in (self.client, self.log):
            if part is not None:
                yield from part.connections

    @property
    def services(self) -> Iterator[Service]:
        """Loops that should run now."""
        if self.client is not None and self.client.workers:
            yield from self.client.services
        if self.log is not None and self.log.members:
            yield from self.log.services


def parts_of(source: Any) -> Parts:
    """The parts of an `OutboxClient`, a `LogClient` or an `Outbox`."""
    if isinstance(source, OutboxClient):
        return Parts(client=source)
    if isinstance(source, LogClient):
        return Parts(log=source)
    if isinstance(source, Outbox):
        return Parts(log=source.client)
    msg = f"Ask for the health of a broker, an OutboxClient or an Outbox, not of {type(source).__name__}."
    raise InvalidOptionType(msg)
