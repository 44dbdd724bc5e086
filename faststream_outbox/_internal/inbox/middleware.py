"""The inbox around the handlers of a FastStream broker.

The transaction begins when a message was parsed and ends after what its handler returned was published, so that a
publisher of the outbox is part of it and a failing publisher undoes it; where the answer is kept, it ends before, so
that nobody hears of what is not committed, and the first answer takes the same way as its repetitions. FastStream
acknowledges after that: its own middleware is the outermost. An ack by hand is remembered and carried out after the
commit: sent before, it would be a message lost, should the process die between the two. Trouble of the database says
nothing about a message, which comes again whatever its subscriber's policy says. Made by `Inbox.middleware`, one for
each message; `once` uses the parts.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from faststream import AckPolicy, BaseMiddleware, ContextRepo
from faststream.exceptions import AckMessage, NackMessage
from faststream.message import StreamMessage, encode_message
from faststream.response import PublishCommand, Response, ensure_response
from faststream.types import AsyncFunc

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import is_transient
from faststream_outbox._internal.inbox.examine import broker_family, examine, key_of
from faststream_outbox._internal.inbox.receipt import SESSION, Answer
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox._internal.inbox.receiving import Receiving
from faststream_outbox.errors import BeingHandled, InvalidOption

_WAYS = ("ack", "nack", "reject")


class Acknowledging:
    """Stands between a handler and its message's `ack`, `nack` and `reject`."""

    def __init__(self, message: StreamMessage[Any]) -> None:
        self._message = message
        self._decision: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None
        for way in _WAYS:
            setattr(message, way, self._remember(way))

    def _remember(self, way: str) -> Callable[..., Awaitable[None]]:
        async def remember(*args: Any, **kwargs: Any) -> None:
            if self._decision is None:
                self._decision = (way, args, kwargs)

        return remember

    @property
    def is_refused(self) -> bool:
        """Whether the handler has decided that its message is not done."""
        return self._decision is not None and self._decision[0] != "ack"

    def restore(self) -> None:
        """Give the message its own ways back."""
        for way in _WAYS:
            self._message.__dict__.pop(way, None)

    async def carry_out(self, *, is_committed: bool) -> None:
        """Do what the handler decided; an ack only if the effects were committed."""
        if self._decision is not None and (is_committed or self.is_refused):
            way, args, kwargs = self._decision
            await getattr(self._message, way)(*args, **kwargs)


def is_manual(subscriber: Any) -> bool:
    """Whether nobody but the handler acknowledges."""
    return getattr(subscriber, "ack_policy", None) is AckPolicy.MANUAL


PAUSE_SECONDS = 0.5
"""How long, on average, a message is held before it goes back: most brokers would bring it again at once."""


class ComesAgain(NackMessage):
    """The message goes back to its broker; raised to FastStream, never to a handler."""


async def put_off(inbox: Receiver, error: BaseException) -> ComesAgain:
    """What to raise for a transient error, after a pause."""
    if not isinstance(error, BeingHandled):
        inbox.events.emit(events.StatementFailed("inbox", error))
    await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))
    return ComesAgain()


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


RECEIVING = "inbox_receiving"
"""Where FastStream's context has the inbox and the raw message that it is about."""


class Skipped(AckMessage):
    """The message was received before; it is acknowledged, and nothing is published."""


def is_delivery(context: ContextRepo, message: StreamMessage[Any]) -> bool:
    """Whether a subscriber handles this message now: not an answer to a request, nor one that a handler asked for."""
    current: Any = context.get_local("message")
    return getattr(current, "raw_message", None) is message.raw_message


def is_received(context: ContextRepo, inbox: Receiver, message: StreamMessage[Any]) -> bool:
    """Whether this inbox is about the message already, as where a broker and its router both have the middleware."""
    of, raw = context.get_local(RECEIVING) or (None, None)
    return of is inbox and raw is message.raw_message


class InboxMiddleware(BaseMiddleware):
    """One message's transaction."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, inbox: Receiver) -> None:
        super().__init__(msg, context=context)
        self._inbox = inbox
        self._receiving: Receiving | None = None
        self._acknowledging: Acknowledging | None = None
        self._tokens: list[tuple[str, Any]] = []
        self._message: StreamMessage[Any] | None = None

    @property
    def _subscriber(self) -> Any:
        return self.context.get_local("handler_")

    async def consume_scope(self, call_next: AsyncFunc, msg: StreamMessage[Any]) -> Any:
        """Receive the message, and have it handled if it is new."""
        subscriber, inbox = self._subscriber, self._inbox
        if subscriber is None or not is_delivery(self.context, msg) or is_received(self.context, inbox, msg):
            return await call_next(msg)
        examine(inbox, subscriber)
        self._message = msg
        receiving = await inbox.begin(key_of(inbox, msg, subscriber), reads_answer=inbox.keep_response)
        if receiving.is_over:
            if receiving.answer is None:
                raise Skipped
            inbox.replayed(receiving.key)
            return response_of(receiving.answer, msg)
        self._receiving = receiving
        self._acknowledging = Acknowledging(msg)
        for name, value in ((SESSION, receiving.session), (RECEIVING, (inbox, msg.raw_message))):
            self._tokens.append((name, self.context.set_local(name, value)))
        result = await call_next(msg)
        if not inbox.keep_response or self._acknowledging.is_refused:
            return result
        await receiving.commit(answer_of(result, subscriber))
        return result if receiving.answer is None else response_of(receiving.answer, msg)

    async def publish_scope(self, call_next: AsyncFunc, cmd: PublishCommand) -> Any:
        """Let what a handler returns to a publisher of the outbox commit together with the receipt."""
        command: Any = cmd
        if self._receiving is not None and broker_family(cmd) == "outbox" and command.session is None:
            if self._receiving.is_over:
                msg = "With keep_response an answer is committed first: publish(…, session=session) in the handler."
                raise InvalidOption(msg)
            command.session, command.may_commit = self._receiving.session, False
        return await call_next(cmd)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool | None:
        """Commit or roll back; let FastStream acknowledge after that."""
        message, receiving, acknowledging = self._message, self._receiving, self._acknowledging
        if message is None:
            return False
        while self._tokens:
            name, token = self._tokens.pop()
            self.context.reset_local(name, token)
        if acknowledging is not None:
            acknowledging.restore()
        if isinstance(exc_val, Skipped) or (receiving is None and exc_val is None):
            if is_manual(self._subscriber):
                # Nobody else will: the handler did not run.
                await message.ack()
            return True
        try:
            if receiving is not None and not receiving.is_over:
                is_done = exc_val is None or isinstance(exc_val, AckMessage)
                is_refused = acknowledging is not None and acknowledging.is_refused
                await (receiving.commit() if is_done and not is_refused else receiving.rollback())
        except BaseException as error:
            await self._put_off(error, message)
            raise
        if acknowledging is not None:
            await acknowledging.carry_out(is_committed=receiving is not None and receiving.is_committed)
        if exc_val is not None:
            await self._put_off(exc_val, message)
        return False

    async def _put_off(self, error: BaseException, message: StreamMessage[Any]) -> None:
        if not is_transient(error):
            return
        again = await put_off(self._inbox, error)
        if is_manual(self._subscriber):
            await message.nack()
        raise again from error
