"""Free ports, and waiting for whoever listens there."""

import asyncio
import socket
from contextlib import closing

PATIENCE = 30.0


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def answers(port: int, patience: float = PATIENCE) -> None:
    """Wait until somebody listens there."""
    async with asyncio.timeout(patience):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
