"""`relay`: the relays that an application has described, and where they go."""

from dataclasses import dataclass

import typer

from faststream_outbox.cli.blocks import Block, Grid, Said
from faststream_outbox.cli.command import command
from faststream_outbox.cli.exits import Answer, Refusal
from faststream_outbox.cli.here import Here
from faststream_outbox.relay.make import weaknesses
from faststream_outbox.relay.relay import Relay


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


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(relay)


async def relay(here: Here) -> Answer:
    """The relays of an application, and where they send to; needs --app."""
    broker = here.place.broker
    if broker is None:
        msg = (
            "Relays are described by an application and not by the database: name its broker, --app module:broker. "
            "Relays that run are among the processes of `workers`."
        )
        raise Refusal(msg)
    found = [_described(each) for each in broker.relays]
    rows = [
        (each.name, ", ".join(each.reads), each.group, ", ".join(each.sends_to), each.batch_size, each.max_in_flight)
        for each in found
    ]
    columns = ("relay", "reads", "as group", "sends to", "batch", "in flight")
    blocks: list[Block] = [Grid(columns, rows, empty="The broker has no relay: broker.relay(…) makes one.")]
    blocks += [Said(f"{each.name} may lose messages: {weak}.", "warning") for each in found for weak in each.weaknesses]
    return Answer(found, blocks)


def _described(relay: Relay) -> Described:
    return Described(
        name=relay.name,
        reads=relay.queues,
        group=relay.group,
        sends_to=tuple(line.name for line in relay.lines),
        batch_size=relay.options.batch_size,
        max_in_flight=relay.options.max_in_flight,
        ordered=relay.options.ordered,
        weaknesses=tuple(weaknesses(relay)),
    )
