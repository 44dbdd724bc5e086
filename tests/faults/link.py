"""One connection through a `Proxy`: its two ends, and what was done to it."""

import asyncio
import contextlib
import socket
import struct
from enum import Enum
from typing import Any

LINGER_ZERO = struct.pack("ii", 1, 0)


class Direction(Enum):
    """Which way bytes go."""

    REQUESTS = "from the client to the server"
    ANSWERS = "from the server to the client"


class Link:
    """A client and the server that it talks to."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.port = int(server.get_extra_info("sockname")[1])
        """The client's port as the server sees it: `client_port` in `pg_stat_activity`."""
        self.torn: set[Direction] = set()
        """Where bytes are missing: whoever reads there could make nothing of more."""
        self.has_lost_answer = False
        self.tail = b""
        """The last bytes of the answers, in case that something asked for comes in two pieces."""

    def cut(self) -> None:
        """Reset both ends."""
        for end in (self.client, self.server):
            raw: Any = end.get_extra_info("socket")
            if raw is not None:
                with contextlib.suppress(OSError):
                    # So that closing sends a reset instead of a goodbye.
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
            end.transport.abort()

    def far_end(self, direction: Direction) -> asyncio.StreamWriter:
        """Where bytes of that direction arrive."""
        return self.server if direction is Direction.REQUESTS else self.client

    def half_close(self, direction: Direction) -> None:
        """Say goodbye to the far end (FIN), which may go on sending; nothing more is passed on to it."""
        self.torn.add(direction)
        with contextlib.suppress(OSError, RuntimeError):
            self.far_end(direction).write_eof()
