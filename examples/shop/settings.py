"""The shop's settings, from the environment. Read once by each program."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the database and NATS are, and how this process works."""

    database_url: str
    nats_url: str
    worker_name: str
    max_workers: int
    lease_seconds: float

    @classmethod
    def read(cls) -> "Settings":
        """From the environment, with defaults for everything."""
        return cls(
            database_url=os.environ.get("SHOP_DATABASE_URL", "postgresql+asyncpg://localhost/shop"),
            nats_url=os.environ.get("SHOP_NATS_URL", "nats://localhost:4222"),
            worker_name=os.environ.get("SHOP_WORKER_NAME", f"process {os.getpid()}"),
            max_workers=int(os.environ.get("SHOP_MAX_WORKERS", "4")),
            lease_seconds=float(os.environ.get("SHOP_LEASE_SECONDS", "60")),
        )


settings = Settings.read()
