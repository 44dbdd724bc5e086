"""Whether a process is well, from what its loops do and not from whether it answers.

`await health(broker)` has it all; `health_routes(broker)` has `/live`, `/ready` and `/health` for a probe. Reads what
the loops note of themselves, and asks the database seldom, on a connection of its own. Above the engines; the broker's
`ping` is made of it.
"""

from faststream_outbox._internal.health.health import Checks, Health, health, health_routes

__all__ = ["Checks", "Health", "health", "health_routes"]
