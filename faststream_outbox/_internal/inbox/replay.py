"""From what a handler returned to an answer that can be kept, and from there to a response that FastStream publishes.

The first answer takes the same way as its repetitions, so that both are the same bytes. Used by the middleware and by
`once`.
"""

from typing import Any

from faststream.message import StreamMessage, encode_message
from faststream.response import Response, ensure_response

from faststream_outbox._internal.inbox.answer import Answer
from faststream_outbox._internal.inbox.identity import broker_family

CONTENT_TYPE = "content-type"


def answer_of(result: Any, subscriber: Any) -> Answer:
    """What a handler returned, encoded as its broker's publishers would do it."""
    response = ensure_response(result)
    serializer = subscriber._outer_config.fd_config._serializer
    body, content_type = encode_message(response.body, serializer)
    given: Any = response.headers.get(CONTENT_TYPE) or getattr(response, "message_options", {}).get("content_type")
    return Answer(body, given or content_type, response.headers)


def response_of(answer: Answer, message: StreamMessage[Any]) -> Response:
    """The response that publishes an answer in the way of the message's broker."""
    headers = dict(answer.headers)
    if broker_family(message) == "rabbit":
        from faststream.rabbit import RabbitResponse

        return RabbitResponse(answer.body, headers=headers, content_type=answer.content_type)
    if answer.content_type is not None:
        headers[CONTENT_TYPE] = answer.content_type
    return Response(answer.body, headers=headers)
