"""A TCP proxy on 127.0.0.1 that can be told to fail: cut, swallow, or answer nothing.

Stands between a worker and PostgreSQL. `cut` resets every connection that there is. `way` says what becomes
of bytes from now on, on old and new connections alike; connections are accepted in any case.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

LINGER_ZERO = struct.pack("ii", 1, 0)


class Way(Enum):
    """What the proxy does with bytes."""

    OPEN = "forward both ways"
    DEAF = "forward what the client sends, swallow what the server answers"
    BLACK_HOLE = "swallow everything"


class Proxy:
    """Forwards to one server."""

    def __init__(self, port: int) -> None:
        self.target = port
        """The server's port; a change holds for connections that come."""
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self.way = Way.OPEN
        self.port = 0
        self.swallowed = 0
        """Bytes that went nowhere."""

    def cut(self) -> int:
        """Reset every connection, and give their number."""
        pairs, self._pairs = self._pairs, set()
        for client, server in pairs:
            for end in (client, server):
                raw = end.get_extra_info("socket")
                if raw is not None:
                    with contextlib.suppress(OSError):
                        # So that closing sends a reset instead of a goodbye.
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
                end.transport.abort()
        return len(pairs)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until one of both ends is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(OSError):
                answers, server = await asyncio.open_connection("127.0.0.1", self.target)
                await self._serve(reader, writer, answers, server)
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _serve(
        self,
        requests: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        pair = (client, server)
        self._pairs.add(pair)
        ways = [
            asyncio.ensure_future(self._forward(requests, server, (Way.OPEN, Way.DEAF))),
            asyncio.ensure_future(self._forward(answers, client, (Way.OPEN,))),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for task in ways:
            task.cancel()
        await asyncio.wait(ways)
        self._pairs.discard(pair)
        server.transport.abort()

    async def end(self) -> None:
        """Reset every connection, and wait until nobody is served."""
        while self._serving:
            self.cut()
            await asyncio.wait(self._serving, timeout=1.0)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ways: tuple[Way, ...]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.way in ways:
                    writer.write(data)
                    await writer.drain()
                else:
                    self.swallowed += len(data)


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of that port."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
