"""`relay`: the relays that an application has described, where they go, and how old what is not relayed yet is.

The application is imported and not started, so that circuits and what is in flight are those of a process that does not
relay: they are shown only where one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Block, Cell, Grid, Marked, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.overview.queues import OLD_SECONDS
from faststream_outbox._internal.relay.relay import Relay, weaknesses
from faststream_outbox._internal.relay.status import RelayStatus
from faststream_outbox._internal.text import age

ELSEWHERE = (
    "Nothing is relayed by this command itself. Whether a broker answers, and what is in flight, is known to the "
    "processes that relay: faststream_outbox_relay_up in their metrics, and the screen Relays of their dashboard."
)


@dataclass(frozen=True, slots=True)
class Described:
    """A relay, as it is written down."""

    name: str
    reads: tuple[str, ...]
    """Queues, or topics where there is a group."""
    group: str | None
    sends_to: tuple[str, ...]
    batch_size: int
    max_in_flight: int
    ordered: bool
    weaknesses: tuple[str, ...]
    """How it may lose messages, and what to do."""
    status: tuple[RelayStatus, ...]
    """One for each broker that it sends to, as `broker.relay_status()` has it."""


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(relay)


async def relay(here: Here) -> Answer:
    """The relays of an application, where they send to, and the age of what is not relayed yet; needs --app."""
    broker = here.source.broker
    if broker is None:
        msg = (
            "Relays are described by an application and not by the database: name its broker, --app module:broker. "
            "Relays that run are among the processes of `workers`."
        )
        raise Refusal(msg)
    try:
        known = await broker.relay_status()
    finally:
        await broker.config.broker_config.backend.close()
    found = [_described(each, [one for one in known if one.name == each.name]) for each in broker.relays]
    rows = [_row(one) for each in found for one in each.status]
    columns = ("relay", "reads", "as group", "sends to", "circuit", "in flight", "oldest")
    blocks: list[Block] = [Grid(columns, rows, empty="The broker has no relay: broker.relay(…) makes one.")]
    blocks += [Said(f"{each.name} may lose messages: {weak}.", "warning") for each in found for weak in each.weaknesses]
    if any(one.circuit == "stopped" for one in known):
        blocks.append(Said(ELSEWHERE))
    return Answer(found, blocks)


def _row(status: RelayStatus) -> tuple[Cell, ...]:
    is_here = status.circuit != "stopped"
    oldest = status.oldest_seconds
    shown: Cell = None if not oldest else age(oldest)
    if oldest is not None and oldest > OLD_SECONDS:
        shown = Marked(age(oldest), "warning")
    circuit: Cell = Marked(status.circuit, "bad" if status.circuit == "open" else "plain") if is_here else None
    in_flight = status.in_flight if is_here else None
    return (status.name, ", ".join(status.sources), status.group, status.destination, circuit, in_flight, shown)


def _described(relay: Relay, status: Sequence[RelayStatus]) -> Described:
    return Described(
        name=relay.name,
        reads=relay.queues,
        group=relay.group,
        sends_to=tuple(line.name for line in relay.lines),
        batch_size=relay.options.batch_size,
        max_in_flight=relay.options.max_in_flight,
        ordered=relay.options.ordered,
        weaknesses=tuple(weaknesses(relay)),
        status=tuple(status),
    )
