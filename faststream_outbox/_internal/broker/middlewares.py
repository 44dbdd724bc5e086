"""What happens around a handler: its transaction, what it returns, its thread, and what its parameters ask for.

`OutboxMiddleware` stands outside of all middlewares of the application. It opens the transaction of a transactional
subscriber before the message is parsed, and ends it after what the handler returned was published: the handler's
writes, the messages that it published and the end of its own message commit together. It passes inbound headers on to
publishers, where a subscriber asks for that, and the message's id to those of other brokers; what any end means, it
leaves to `Deciding`.

`publishing_responses` publishes an `OutboxResponse` inside of the handler's dependencies: FastStream does it after they
have ended, when a session from one of them has committed and closed. `in_thread` runs handlers that are no coroutines:
nothing cancels a thread, so whoever cancels such a handler waits for it, and its message is not given to another one
meanwhile; what it answers counts, and only the end of the event loop cuts the waiting short. `check_session` looks at
parameters where a handler is registered, and not when the first message fails. Called by the subscriber.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from fast_depends.utils import is_coroutine_callable, run_in_threadpool
from faststream import BaseMiddleware
from faststream.context import Context
from faststream.exceptions import AckMessage, HandlerException
from faststream.message import StreamMessage
from faststream.response import PublishCommand
from faststream.types import AsyncFunc
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.forwarding import MESSAGE_ID, NATS_MESSAGE_ID, carry_id
from faststream_outbox._internal.broker.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    REPLY_TO,
    SESSION,
    Deciding,
    Received,
)
from faststream_outbox._internal.broker.response import OutboxPublishCommand, OutboxResponse
from faststream_outbox._internal.connections.caller import end
from faststream_outbox._internal.connections.cause import is_conflict
from faststream_outbox._internal.log.message import EVENT_ID
from faststream_outbox._internal.outcomes.calling import overdue
from faststream_outbox._internal.outcomes.outcome import STOPPED, Release, Retry
from faststream_outbox._internal.service import unbroken
from faststream_outbox.errors import InvalidOption, LeaseLost

if TYPE_CHECKING:
    from faststream_outbox._internal.broker.subscriber import OutboxSubscriber


# Ids too: they are the inbound message's own, and a second message under one of them would be a duplicate.
_OURS = (CONTENT_TYPE, CORRELATION_ID, REPLY_TO, EVENT_ID, MESSAGE_ID, NATS_MESSAGE_ID)


def pass_headers_on(
    cmd: PublishCommand, inbound: Mapping[str, Any] | None, subscriber: "OutboxSubscriber | None"
) -> None:
    """Give a response without headers those of the message, where the subscriber asks for that."""
    has_own = cmd.has_own_headers if isinstance(cmd, OutboxPublishCommand) else bool(cmd.headers)
    if inbound and subscriber is not None and subscriber.propagates_headers and not has_own:
        passed_on = {name: value for name, value in inbound.items() if name not in _OURS}
        cmd.headers = passed_on | (cmd.headers or {})


class OutboxMiddleware(BaseMiddleware):
    """One message's failure, transaction and headers."""

    __slots__ = ("_inbound", "_session", "_token")

    def __init__(self, msg: Any | None, /, *, context: Any) -> None:
        super().__init__(msg, context=context)
        self._session: AsyncSession | None = None
        self._token: Any = None
        self._inbound: dict[str, Any] | None = None

    def _subscriber(self) -> "OutboxSubscriber | None":
        return cast("OutboxSubscriber | None", self.context.get_local("handler_"))

    def _deciding(self, subscriber: "OutboxSubscriber | None") -> Deciding:
        return Deciding(self.msg, is_manual=subscriber is not None and subscriber.is_manual)

    async def on_receive(self) -> None:
        """Open the transaction of a transactional subscriber."""
        subscriber = self._subscriber()
        if self.msg is not None and subscriber is not None and subscriber.is_transactional:
            session = subscriber.open_session()
            deciding = self._deciding(subscriber)
            try:
                await subscriber.begin_within(session, deciding.claims)
            except BaseException as error:
                # Cancelled by the end of its time, it has not begun either; by a stop, the engine gives it back.
                cause = overdue() if isinstance(error, asyncio.CancelledError) else error
                if cause is None or isinstance(cause, LeaseLost):
                    deciding.failed(error, can_forward=True)
                else:
                    deciding.not_begun(cause)
                # Nobody calls `after_processed` where this raises.
                await session.close()
                raise
            self._session = session
            self._token = self.context.set_local(SESSION, session)

    async def consume_scope(self, call_next: AsyncFunc, msg: StreamMessage[Any]) -> Any:
        """Remember the headers for publishers, and let a response with a queue of its own find its publisher."""
        self._inbound = msg.headers
        result = await call_next(msg)
        if isinstance(result, OutboxResponse) and not msg.reply_to:
            # Only then does FastStream ask for the publisher of a response.
            msg.reply_to = result.queue
        return result

    async def publish_scope(self, call_next: AsyncFunc, cmd: PublishCommand) -> Any:
        """Pass inbound headers on, where a subscriber asks for that and the response has none."""
        pass_headers_on(cmd, self._inbound, self._subscriber())
        if not isinstance(cmd, OutboxPublishCommand) and isinstance(self.msg, Received):
            carry_id(cmd, self.msg, getattr(self._subscriber(), "group", None))
        try:
            return await call_next(cmd)
        except Exception as error:
            self._deciding(self._subscriber()).unpublished(error)
            raise

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool | None:
        """Keep the failure; commit or roll back."""
        cut_off = self._cut_off(exc_val)
        if exc_val is None and self._session is None and cut_off is None:
            return False
        subscriber = self._subscriber()
        deciding = self._deciding(subscriber)
        was_cut_off = cut_off is not None and deciding.cut_off(cut_off)
        if isinstance(exc_val, HandlerException) and subscriber is not None:
            deciding.instructed(exc_val, subscriber.options.lease_ttl_seconds)
        elif exc_val is not None:
            deciding.failed(exc_val, can_forward=subscriber is None or subscriber.can_forward)
            self._note_conflict(exc_val)
        if self._session is not None:
            is_done = (exc_val is None and not was_cut_off) or isinstance(exc_val, AckMessage)
            await self._end_transaction(deciding, is_done=is_done)
        return False

    def _cut_off(self, error: BaseException | None) -> Release | Retry | None:
        """What becomes of a message whose handler was cancelled and ended otherwise: nobody knows how far it got."""
        subscriber, task = self._subscriber(), asyncio.current_task()
        if subscriber is None or task is None or not task.cancelling():
            return None
        if isinstance(error, HandlerException | asyncio.CancelledError):
            # The first decides, and of the other one the engine knows what it means.
            return None
        if subscriber.is_stopping:
            return STOPPED
        late = overdue()
        if late is None:
            return None
        late.__cause__ = error
        return Retry(error=late)

    def _note_conflict(self, error: BaseException) -> None:
        subscriber = self._subscriber()
        if self._session is not None and subscriber is not None and is_conflict(error):
            subscriber.conflicted()

    async def _end_transaction(self, deciding: Deciding, *, is_done: bool) -> None:
        session, subscriber = self._session, self._subscriber()
        assert session is not None
        assert subscriber is not None
        self.context.reset_local(SESSION, self._token)
        try:
            if not (is_done and deciding.is_finished):
                end(session)
                await session.rollback()
                deciding.rolled_back(is_done=is_done, policy=subscriber.ack_policy)
                return
            try:
                await subscriber.settle_within(session, deciding.claims)
                end(session)
                await unbroken(subscriber.commit(session, deciding))
            except BaseException as error:
                if deciding.is_committed:
                    # Cancelled just when it had committed.
                    raise
                deciding.not_committed(error)
                self._note_conflict(error)
                await session.rollback()
                raise
        finally:
            end(session)
            await session.close()


Call = Callable[..., Any]


def publishing_responses(config: OutboxBrokerConfig) -> Callable[[Call], Call]:
    """A decorator for the handlers of a subscriber with this configuration."""

    async def publish_now(response: OutboxResponse) -> None:
        message = config.context.get_local("message")
        if response.correlation_id is None and message is not None:
            response.correlation_id = message.correlation_id
        publish: Any = config.producer.publish
        for middleware in reversed(list(config.broker_middlewares)):
            scope = middleware(None, context=config.context).publish_scope
            publish = functools.partial(scope, publish)
        try:
            command = response.as_publish_command()
            pass_headers_on(command, getattr(message, "headers", None), config.context.get_local("handler_"))
            await publish(command)
        except Exception as error:
            Deciding(getattr(message, "raw_message", None), is_manual=False).unpublished(error)
            raise
        response.is_published = True

    def decorate(call: Call) -> Call:
        if not is_coroutine_callable(call):
            return call

        @functools.wraps(call)
        async def responding(*args: Any, **kwargs: Any) -> Any:
            result = await call(*args, **kwargs)
            if isinstance(result, OutboxResponse) and result.queue and result.session is not None:
                await publish_now(result)
            return result

        return responding

    return decorate


def in_thread(call: Call) -> Call:
    """A handler as a coroutine function that ends when its thread ends; coroutine functions stay as they are."""
    if is_coroutine_callable(call):
        return call

    @functools.wraps(call)
    async def threaded(*args: Any, **kwargs: Any) -> Any:
        thread = asyncio.ensure_future(run_in_threadpool(call, *args, **kwargs))
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        while True:
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                # The loop cancels every task at its end, also the one that waits for the thread.
                if thread.cancelled():
                    raise
            finally:
                if thread.done() and not thread.cancelled():
                    # What the thread answers counts: the cancellation has come to nothing.
                    while task is not None and task.cancelling() > before:
                        task.uncancel()

    return threaded


def keep_callable(handler: Any) -> None:
    """Let tests and other code call a handler as it was written: FastStream would give them the coroutine function."""
    declared = getattr(handler, "_declared_call", None)
    if declared is not None and not is_coroutine_callable(declared):
        handler._composed_call = declared


def check_session(handler: Callable[..., Any]) -> None:
    """Refuse a handler that needs the session of a transaction which its subscriber does not open."""
    try:
        parameters = inspect.signature(handler).parameters
        hints = get_type_hints(handler, include_extras=True)
    except Exception:  # noqa: BLE001 - FastStream says what is wrong with annotations that cannot be read
        return
    for name, parameter in parameters.items():
        asked = any(isinstance(each, Context) and each.name == SESSION for each in get_args(hints.get(name)))
        if asked and parameter.default is inspect.Parameter.empty:
            msg = (
                f"{getattr(handler, '__name__', handler)!s}: the parameter {name!r} is the session of a transaction, "
                "and this subscriber opens none. Write subscriber(…, transactional=True)."
            )
            raise InvalidOption(msg)
