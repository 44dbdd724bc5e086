"""How relays are: what each reads, where to, whether that broker answers, and how old the oldest waiting message is.

The age is the database's: it is the same in every process, and it grows also where no process relays. The rest is that
of this process. Asked through `broker.relay_status()`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin.positions import lags
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.relay.line import Line
from faststream_outbox._internal.relay.relay import Relay
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.overview_rows import OldestOfGroup
from faststream_outbox._internal.sql.queue_rows import OldestOfQueue
from faststream_outbox._internal.sql.statements import named, statements

TIMEOUT = 5.0
"""Seconds that the question may take."""
MOST = 100
"""Messages that are looked at of each queue and priority."""
MOST_OF_GROUP = 1_000
"""Messages that are looked at of each group, of those that are deferred."""

State = Literal["closed", "open", "starting", "stopped"]


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """One relay and one broker that it sends to."""

    name: str
    sources: tuple[str, ...]
    """The queues, or the topics of the group, that it reads."""
    group: str | None
    """Who reads the topics; None: these are queues."""
    destination: str
    """The name of the transport, as in events."""
    circuit: State
    """"closed": the broker answers. "open": it does not. "starting": not known yet. "stopped": not in this process."""
    error: str | None
    """Why it is open."""
    in_flight: int
    """Messages that this process sends now."""
    oldest_seconds: float | None
    """For how long the oldest message waits that is not relayed; 0 where none does, None where that is not known."""


class RelayAges:
    """Asks the tables how old the oldest message is that waits, on a connection of its own."""

    def __init__(self, engine: AsyncEngine, names: Names, log_names: LogNames | None) -> None:
        self._connection = DedicatedConnection(engine, timeout=TIMEOUT, role="overview")
        self._names = names
        self._log_names = log_names

    async def of_queues(self, queues: Sequence[str]) -> dict[str, float]:
        """By queue; those with nothing that waits are left out."""
        values = {"queues": list(queues), "limit": MOST}
        rows = await self._connection.fetch(statements("relay", self._names)["oldest_of_queues"], values)
        return {row.queue: row.seconds for row in named(OldestOfQueue, rows)}

    async def of_groups(self, groups: Sequence[Group]) -> dict[Group, OldestOfGroup]:
        """What groups have not read, and what they have deferred and not parked."""
        if self._log_names is None:
            return {}
        asked = sorted({(group.name, group.uri) for group in groups})
        names, uris = ([pair[place] for pair in asked] for place in (0, 1))
        values = {"groups": names, "uris": uris, "limit": MOST_OF_GROUP}
        rows = await self._connection.fetch(statements("overview_log", self._log_names)["oldest_of_groups"], values)
        found = {Group(row.consumer_group, row.uri): row for row in named(OldestOfGroup, rows)}
        for name in sorted({name for name, _ in asked}):
            for lag in await lags(self._connection, self._log_names, name, None):
                row = found.get(Group(lag.group, lag.uri))
                if row is not None:
                    seconds = max(lag.seconds, row.seconds or 0.0)
                    found[Group(lag.group, lag.uri)] = row._replace(seconds=seconds)
        return found

    async def close(self) -> None:
        """Close the connection; the next question would open another."""
        await self._connection.close()


async def relay_status(relays: Sequence[Relay], ages: RelayAges | None) -> list[RelayStatus]:
    """Every relay, once for each broker that it sends to; without `ages`, how old what waits is stays unknown."""
    readings = [(relay, *reading) for relay in relays for reading in relay.readings()]
    queues = [name for relay, names, _, _ in readings if relay.group is None for name in names]
    groups = [Group(relay.group, name) for relay, names, _, _ in readings if relay.group is not None for name in names]
    of_queues = await ages.of_queues(queues) if ages is not None and queues else {}
    of_groups = await ages.of_groups(groups) if ages is not None and groups else {}
    return [
        RelayStatus(
            relay.name,
            names,
            relay.group,
            line.name,
            _state(relay, line, is_ready=is_ready),
            None if line.circuit.error is None else f"{type(line.circuit.error).__name__}: {line.circuit.error}",
            line.in_flight,
            None if ages is None else _oldest(relay, names, of_queues, of_groups),
        )
        for relay, names, line, is_ready in readings
    ]


def _state(relay: Relay, line: Line, *, is_ready: bool) -> State:
    if not relay.is_running:
        return "stopped"
    if not line.circuit.is_closed:
        return "open"
    return "closed" if is_ready else "starting"


def _oldest(
    relay: Relay, names: Sequence[str], of_queues: Mapping[str, float], of_groups: Mapping[Group, OldestOfGroup]
) -> float | None:
    """The greatest age of what a line reads; None if a group has no place, and will not begin with what is there."""
    if relay.group is None:
        return max((of_queues.get(name, 0.0) for name in names), default=0.0)
    found = [of_groups[Group(relay.group, name)] for name in names if Group(relay.group, name) in of_groups]
    if not all(row.has_place or relay.options.start == "earliest" for row in found):
        return None
    return max((row.seconds or 0.0 for row in found), default=0.0)
