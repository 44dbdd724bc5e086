"""A worker, as those see it who serve it: the client, the claimer and what they are made of.

`Worker` is one. It stands above them, so they know it by this much only.
"""

from typing import Protocol

from faststream_outbox._internal.queue.claim import Claim, Holder
from faststream_outbox._internal.queue.planning.claim_plan import ClaimPlan


class Claimant(Holder, Protocol):
    """Has queues to claim from, room for messages, and takes what was claimed for it."""

    queues: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether every one of its loops is alive."""
        ...

    def stuck_for(self, now: float) -> float:
        """Seconds since a message found a handler, if some wait although an executor is free; else 0."""
        ...

    def busy_for(self, now: float) -> float:
        """Seconds that every executor has been with the same handler; 0 while one is free."""
        ...

    @property
    def recovering(self) -> int:
        """Executors that wait for a moment because they have crashed."""
        ...

    @property
    def room(self) -> int:
        """How many messages to claim now."""
        ...

    @property
    def longest_run(self) -> int:
        """How many messages of one key to claim at once."""
        ...

    def receive(self, claims: list[Claim]) -> None:
        """Take messages that were claimed."""
        ...

    def receive_run(self, run: list[Claim]) -> None:
        """Take messages of one key, to be handled one after the other."""
        ...


Open = dict[Claimant, ClaimPlan]
"""Workers that have room, and what they want."""
