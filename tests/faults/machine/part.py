"""What a child of the machine plays, as it is handed over on its command line."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.faults.machine.stage import LEASE_SECONDS
from tests.pgbouncer.conftest import SETTINGS

PRODUCER = "producer"
WORKER = "worker"
TRANSACTIONAL_WORKER = "transactional_worker"
MEMBER = "member"
TRANSACTIONAL_MEMBER = "transactional_member"
SOUGHT_MEMBER = "sought_member"
REVIVED_WORKER = "revived_worker"
RELAY = "relay"
CONSUMER = "consumer"
ROLES = (
    PRODUCER,
    WORKER,
    TRANSACTIONAL_WORKER,
    REVIVED_WORKER,
    MEMBER,
    TRANSACTIONAL_MEMBER,
    SOUGHT_MEMBER,
    RELAY,
    CONSUMER,
)

POOL = 12
"""Connections of an engine at most: a transactional handler uses one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Who it is, and where everything is."""

    role: str
    seed: int
    dsn: str
    history: str
    pooled: str | None = None
    """Through PgBouncer, for a child that goes that way."""
    nats: str | None = None
    driver: str = "asyncpg"
    lease_seconds: float = LEASE_SECONDS
    pace: float = 20.0
    """Transactions a second, of a producer."""
    places: tuple[str, ...] = ()
    """Where a producer publishes to; empty is everywhere."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of subscribers."""
    broker: dict[str, Any] = field(default_factory=dict)
    """Further options of brokers that read queues."""
    habits: dict[str, float] = field(default_factory=dict)
    """What a producer does otherwise: fields of `Habit`."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**{**values, "places": tuple(values["places"])})

    def engine(self) -> AsyncEngine:
        """The user's engine, through the pooler where there is one for this child."""
        address = (self.pooled or self.dsn).replace("postgresql://", f"postgresql+{self.driver}://")
        settings = SETTINGS[self.driver] if self.pooled else {}
        # A request of a user has a limit, and a connection that the server forgot is found by it.
        limits = {"command_timeout": 15} if self.driver == "asyncpg" else {}
        return create_async_engine(
            address, connect_args={**settings, **limits}, pool_size=POOL, max_overflow=0, pool_pre_ping=True
        )
