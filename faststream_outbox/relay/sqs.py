"""To SQS with aiobotocore: ten messages in a request, each with a fate of its own; FIFO groups and deduplication too.

`broker.relay("orders", to=SqsTransport("https://sqs.eu-central-1.amazonaws.com/123/orders.fifo"))`. In a FIFO queue the
message's key is its group and its id the deduplication id, so SQS drops within five minutes what was sent twice.
"""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from faststream_outbox._internal.relay.target import address_of, scheme_of
from faststream_outbox._internal.relay.transport import (
    CONTENT_TYPE,
    CORRELATION_ID,
    MESSAGE_ID,
    REPLY_TO,
    SENT,
    Refused,
    RelayMessage,
    Result,
    Unavailable,
)
from faststream_outbox.errors import InvalidOption

__all__ = ["SqsTransport"]

MOST_ENTRIES = 10
MOST_BYTES = 262_144
"""Of a request; SQS counts bodies and attributes."""
MOST_ATTRIBUTES = 10
ENCODING = "content-encoding"
_OF_THE_MESSAGE = frozenset(
    ("InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeValue", "UnsupportedOperation")
)


class SqsTransport:
    """A queue of SQS; or with `by_uri`, the queues that `sqs://name/key` names.

    queue_url: the queue's address; it ends in `.fifo` for a FIFO queue.
    by_uri: makes the address of the name in a message's URI.
    session: an aiobotocore session; None makes one, which finds credentials as boto does.
    client_options: region_name, endpoint_url and whatever else `create_client("sqs")` takes.
    """

    name = "sqs"

    def __init__(
        self,
        queue_url: str | None = None,
        *,
        by_uri: Mapping[str, str] | None = None,
        session: Any | None = None,
        **client_options: Any,
    ) -> None:
        if (queue_url is None) == (by_uri is None):
            msg = "SqsTransport needs the address of its queue, or by_uri={'orders': 'https://sqs…/orders'}."
            raise InvalidOption(msg)
        self._queue_url = queue_url
        self._by_uri = by_uri or {}
        self._session = session
        self._options = client_options
        self._stack = AsyncExitStack()
        self._client: Any = None

    async def start(self) -> None:
        """Make a client."""
        if self._session is None:
            from aiobotocore.session import get_session  # type: ignore[import-untyped]  # it has no types

            self._session = get_session()
        self._client = await self._stack.enter_async_context(self._session.create_client("sqs", **self._options))

    async def stop(self) -> None:
        """Close the client."""
        self._client = None
        await self._stack.aclose()

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Send them in requests of ten, all at the same time."""
        results: list[Result] = [SENT] * len(messages)
        by_queue: dict[str, list[tuple[int, dict[str, Any], int]]] = {}
        for place, message in enumerate(messages):
            url = self._url(message)
            if url is None:
                results[place] = Refused(LookupError(f"no queue is known for {message.uri!r}: see by_uri"))
                continue
            entry, size = _entry(place, message, is_fifo=url.endswith(".fifo"))
            if size > MOST_BYTES:
                results[place] = Refused(ValueError(f"{size} bytes are more than the {MOST_BYTES} that SQS takes"))
                continue
            by_queue.setdefault(url, []).append((place, entry, size))
        requests = [
            self._request(url, chunk, results) for url, entries in by_queue.items() for chunk in _chunks(entries)
        ]
        await asyncio.gather(*requests)
        return results

    def _url(self, message: RelayMessage) -> str | None:
        if self._queue_url is not None:
            return self._queue_url
        return self._by_uri.get(address_of(message.uri)[0]) if scheme_of(message.uri) else None

    async def _request(self, url: str, entries: list[tuple[int, dict[str, Any]]], results: list[Result]) -> None:
        try:
            answer = await self._client.send_message_batch(QueueUrl=url, Entries=[entry for _, entry in entries])
        except Exception as error:  # noqa: BLE001 - botocore's errors are made at run time
            for place, _ in entries:
                results[place] = Unavailable(error)
            return
        for failed in answer.get("Failed", ()):
            said = f"{failed.get('Code', '')}: {failed.get('Message', '')}"
            is_its_own = failed.get("SenderFault") or failed.get("Code") in _OF_THE_MESSAGE
            results[int(failed["Id"])] = Refused(ValueError(said)) if is_its_own else Unavailable(OSError(said))


def _chunks(entries: list[tuple[int, dict[str, Any], int]]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Requests of at most ten entries and so many bytes."""
    chunk: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for place, entry, its_size in entries:
        if len(chunk) == MOST_ENTRIES or (chunk and size + its_size > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((place, entry))
        size += its_size
    if chunk:
        yield chunk


def _entry(place: int, message: RelayMessage, *, is_fifo: bool) -> tuple[dict[str, Any], int]:
    """One entry of a request, and its size."""
    body, encoding = _text(message.body)
    said = {
        MESSAGE_ID: message.id,
        CORRELATION_ID: message.correlation_id,
        CONTENT_TYPE: message.content_type,
        REPLY_TO: message.reply_to,
        ENCODING: encoding,
    }
    attributes = {name: value for name, value in said.items() if value}
    headers = {name: value for name, value in message.text_headers().items() if value}
    if len(attributes) + len(headers) > MOST_ATTRIBUTES:
        attributes["headers"] = json.dumps(headers)
    else:
        attributes |= headers
    size = len(body.encode()) + sum(len(name) + len(value.encode()) + 6 for name, value in attributes.items())
    entry: dict[str, Any] = {
        "Id": str(place),
        "MessageBody": body,
        "MessageAttributes": {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()},
    }
    if is_fifo:
        # What has no order is a group of its own.
        entry["MessageGroupId"] = (message.order_key or message.id)[-128:]
        entry["MessageDeduplicationId"] = message.id
    return entry, size


def _text(body: bytes) -> tuple[str, str | None]:
    """The body as SQS takes it: text of XML's characters; whatever is none as base64, which an attribute tells."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"
    if text and all(character in "\t\n\r" or " " <= character < "\ufffe" or character > "\uffff" for character in text):
        return text, None
    return base64.b64encode(body).decode(), "base64"
