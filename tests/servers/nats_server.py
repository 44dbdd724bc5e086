"""A NATS server with JetStream that a test may kill and start again under the same address."""

from pathlib import Path

import nats
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext

from tests.servers.process import ProcessServer
from tests.servers.programs import nats_server


class NatsServer(ProcessServer):
    """Keeps its streams on disk, so that they outlive a kill."""

    def __init__(self, directory: Path) -> None:
        self._program = nats_server()
        super().__init__(directory)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        where = ["-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._directory)]
        await self._started([self._program, *where])

    async def stored(self, stream: str) -> list[tuple[bytes, dict[str, str]]]:
        """The bodies and headers of all messages in a stream."""
        client = await nats.connect(self.url)
        try:
            context = client.jetstream()
            last = (await context.stream_info(stream)).state.last_seq
            return [await _message(context, stream, number) for number in range(1, last + 1)]
        finally:
            await client.close()

    async def make_stream(self, name: str, *subjects: str) -> None:
        client = await nats.connect(self.url)
        try:
            await client.jetstream().add_stream(StreamConfig(name=name, subjects=list(subjects)))
        finally:
            await client.close()

    async def delete_stream(self, name: str) -> None:
        client = await nats.connect(self.url)
        try:
            await client.jetstream().delete_stream(name)
        finally:
            await client.close()


async def _message(context: JetStreamContext, stream: str, number: int) -> tuple[bytes, dict[str, str]]:
    found = await context.get_msg(stream, number)
    return found.data or b"", found.headers or {}
