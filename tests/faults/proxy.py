"""A TCP proxy on 127.0.0.1 that can be told to fail: cut, half-close, delay, throttle, swallow, or answer nothing.

Stands between a worker and PostgreSQL or another server. `way` says what becomes of all bytes from now on;
`trouble` does so for some connections or one direction, as long as its block lasts. `cut` and `half_close` are
done to connections that there are. New connections are accepted in any case, and go to `target`, which can be
changed at any time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from typing import Any

from tests.faults.link import Direction, Link
from tests.faults.trouble import Trouble, every


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
        self.links: set[Link] = set()
        """The connections that there are."""
        self.troubles: list[Trouble] = []
        """What is wrong with the line now."""
        self._serving: set[asyncio.Task[Any]] = set()
        self.way = Way.OPEN
        self.port = 0
        self.swallowed = 0
        """Bytes that went nowhere."""
        self.lost_answers = 0
        """Answers that were looked for and swallowed."""
        self._lost_answer = asyncio.Event()

    def cut(self, only: Callable[[Link], bool] = every) -> int:
        """Reset every connection, or some, and give their number."""
        links = {link for link in self.links if only(link)}
        self.links -= links
        for link in links:
            link.cut()
        return len(links)

    def half_close(self, direction: Direction, only: Callable[[Link], bool] = every) -> int:
        """Tell the far end of one direction that nothing more comes, and give the number of connections.

        The other direction stays open until one end closes it.
        """
        links = {link for link in self.links if only(link)}
        for link in links:
            link.half_close(direction)
        return len(links)

    @contextmanager
    def trouble(self, trouble: Trouble) -> Iterator[None]:
        """A bad line for the length of the block; connections that lost bytes are reset at its end."""
        self.troubles.append(trouble)
        try:
            yield
        finally:
            self.troubles.remove(trouble)
            self.cut(lambda link: bool(link.torn))

    async def loses_answer(self) -> None:
        """Wait until the next answer that was looked for is swallowed."""
        self._lost_answer.clear()
        await self._lost_answer.wait()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until one of both ends is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(OSError):
                answers, server = await asyncio.open_connection("127.0.0.1", self.target)
                await self._serve(reader, answers, Link(writer, server))
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _serve(self, requests: asyncio.StreamReader, answers: asyncio.StreamReader, link: Link) -> None:
        self.links.add(link)
        ways = [
            asyncio.ensure_future(self._forward(requests, link, Direction.REQUESTS)),
            asyncio.ensure_future(self._forward(answers, link, Direction.ANSWERS)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for task in ways:
            task.cancel()
        await asyncio.wait(ways)
        self.links.discard(link)
        link.server.transport.abort()

    async def end(self) -> None:
        """Reset every connection, and wait until nobody is served."""
        while self._serving:
            self.cut()
            await asyncio.wait(self._serving, timeout=1.0)

    async def _forward(self, reader: asyncio.StreamReader, link: Link, direction: Direction) -> None:
        writer = link.far_end(direction)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                troubles = [trouble for trouble in self.troubles if trouble.concerns(link, direction)]
                for trouble in troubles:
                    await asyncio.sleep(trouble.pause(len(data)))
                # What ended meanwhile has reset its connections already: one more would never be reset.
                troubles = [trouble for trouble in troubles if trouble in self.troubles]
                if self._swallows(link, direction, data, troubles):
                    self.swallowed += len(data)
                elif not writer.transport.is_closing():
                    writer.write(data)
                    await writer.drain()

    def _swallows(self, link: Link, direction: Direction, data: bytes, troubles: list[Trouble]) -> bool:
        had_lost_answer = link.has_lost_answer
        if any(trouble.swallows(link, data) for trouble in troubles):
            link.torn.add(direction)
            if link.has_lost_answer and not had_lost_answer:
                self.lost_answers += 1
                self._lost_answer.set()
            return True
        if direction in link.torn:
            return True
        return self.way is Way.BLACK_HOLE or (self.way is Way.DEAF and direction is Direction.ANSWERS)


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
