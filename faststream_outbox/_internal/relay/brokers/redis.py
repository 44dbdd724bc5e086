"""To Redis: streams, lists and channels. All messages of a wave go in one transaction (MULTI … EXEC).

A transaction is taken as a whole and in its order, or not at all: so runs of one key go together, and nothing is sent
one by one. A cluster has no such transactions; there each message goes by itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from faststream.redis import RedisClusterBroker
from redis import exceptions

from faststream_outbox._internal.relay.brokers.publishing import Address, Publishing, by_itself, text_headers
from faststream_outbox._internal.relay.transport import SENT, Refused, RelayMessage, Result, Unavailable

_DOWN = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.ExecAbortError,
    exceptions.WatchError,
    OSError,
    TimeoutError,
)
_KINDS = ("stream", "list", "channel")


class RedisTransport(Publishing):
    """A Redis broker."""

    def __init__(self, broker: Any, publisher: Any | None, address: Callable[[str], Address] | None) -> None:
        super().__init__(broker, publisher, address)
        self._kind = "stream" if publisher is None else next(kind for kind in _KINDS if hasattr(publisher, kind))

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]  # known only once the publisher's router is included
        """A transaction does; a test broker and a cluster have none."""
        return not (self.is_test or isinstance(self.broker, RedisClusterBroker))

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Send them as one transaction, and wait for its answer."""
        if not self.keeps_order:
            return await super().send(messages)
        client = await self.broker.connect()
        results: list[Result] = [SENT] * len(messages)
        queued: list[int] = []
        fallen: dict[str, Exception] = {}
        async with client.pipeline(transaction=True) as pipeline:
            for place, message in enumerate(messages):
                if message.order_key is not None and message.order_key in fallen:
                    results[place] = Unavailable(fallen[message.order_key])
                    continue
                try:
                    await self._publish(message, pipeline)
                except Exception as error:  # noqa: BLE001 - of the message, or of a middleware
                    results[place] = self.judge(error)
                    if message.order_key is not None:
                        fallen[message.order_key] = error
                else:
                    queued.append(place)
            try:
                answers = await pipeline.execute(raise_on_error=False) if queued else []
            except (exceptions.RedisError, OSError) as error:
                answers = [error] * len(queued)
        for place, answer in zip(queued, answers, strict=True):
            if isinstance(answer, Exception):
                results[place] = self.judge(answer)
        return results

    async def publish(self, message: RelayMessage) -> None:
        """Publish one message, and wait for Redis's answer."""
        await self._publish(message, None)

    async def _publish(self, message: RelayMessage, pipeline: Any) -> None:
        where = self.where(message)
        given: dict[str, Any] = {} if where is None else {self._kind: where[0]}
        if pipeline is not None:
            given["pipeline"] = pipeline
        await self._to.publish(
            message.body,
            headers=_ascii(text_headers(message)),
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            **given,
        )

    def judge(self, error: Exception) -> Refused | Unavailable:
        """Redis refuses what has the wrong type; most of its other errors are about the server."""
        if isinstance(error, _DOWN):
            return Unavailable(error)
        if isinstance(error, exceptions.ResponseError):
            return Refused(error)
        return by_itself(error)


def _ascii(headers: dict[str, str]) -> dict[str, Any]:
    # FastStream's format counts the characters of a text and writes its bytes: others than ASCII go as bytes.
    if all(map(str.isascii, headers.values())):
        return dict(headers)
    return {name: value if value.isascii() else value.encode() for name, value in headers.items()}
