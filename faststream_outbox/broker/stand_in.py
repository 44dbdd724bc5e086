"""A stand-in for a broker's client and producer, seen by one task and its children only.

FastStream's docs page lets one try a message out on a broker that is running: the test broker then takes
the real one's place. Everybody else must go on with the real one meanwhile, or what they publish would
be lost. Set by `testing`, heeded by `config` and `producer`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faststream_outbox.broker.config import OutboxBrokerConfig
    from faststream_outbox.broker.producer import OutboxProducer
    from faststream_outbox.queue.client import OutboxClient


@dataclass(frozen=True, slots=True)
class StandIn:
    """What takes the place of a broker's own."""

    config: "OutboxBrokerConfig"
    client: "OutboxClient"
    producer: "OutboxProducer"


_STAND_INS: ContextVar[tuple[StandIn, ...]] = ContextVar("outbox_stand_ins", default=())


def stand_in(config: "OutboxBrokerConfig") -> StandIn | None:
    """The stand-in that this task sees for a broker, if any."""
    for one in _STAND_INS.get():
        if one.config is config:
            return one
    return None


@contextmanager
def standing_in(one: StandIn) -> Generator[None, None, None]:
    """Let this task see the stand-in."""
    before = _STAND_INS.get()
    _STAND_INS.set((*before, one))
    try:
        yield
    finally:
        _STAND_INS.set(before)
