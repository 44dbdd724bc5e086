"""A NATS server with JetStream that a test may kill and start again under the same address."""

import subprocess
from pathlib import Path

import nats
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext

from tests.servers.ports import answers, free_port
from tests.servers.programs import nats_server


class NatsServer:
    """Keeps its streams on disk, so that they outlive a kill."""

    def __init__(self, directory: Path) -> None:
        self._program = nats_server()
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        where = ["-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._directory)]
        self._process = subprocess.Popen([self._program, *where], stderr=subprocess.DEVNULL)
        await answers(self._port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

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
