"""The inbox around one handler: `@broker.subscriber(…)` above `@inbox.once`.

The transaction begins when the handler's arguments are known and is committed when it returns: what it returned is
published after that. A handler called by hand, as in a test, runs as it is. Made by `Inbox.once`.
"""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

from faststream.context import Context, ContextRepo
from faststream.message import StreamMessage

from faststream_outbox._internal.connections.cause import is_transient
from faststream_outbox._internal.inbox.examine import examine, key_of
from faststream_outbox._internal.inbox.middleware import (
    Acknowledging,
    Skipped,
    answer_of,
    is_manual,
    is_received,
    put_off,
    response_of,
)
from faststream_outbox._internal.inbox.receipt import SESSION
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox.errors import InvalidOptionType

CONTEXT = "inbox_context"


class _Context(Context):
    """FastStream's context itself, resolved without leaving the event loop."""

    async def use(self, /, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # the resolver awaits coroutines
        return super().use(**kwargs)


def once(inbox: Receiver, handler: Callable[..., Any], keeps: bool) -> Any:
    """The handler, run once for each message."""
    if not inspect.iscoroutinefunction(handler):
        name = getattr(handler, "__name__", repr(handler))
        msg = (
            f"once takes a handler that is `async def` and stands below @broker.subscriber(…); {name} is none. "
            "For sync code there is SyncInbox.receive."
        )
        raise InvalidOptionType(msg)
    signature, sessions = _signature(handler)
    if keeps:
        # What FastStream gets is bytes by then, and must not be held against what the handler returns.
        signature = signature.replace(return_annotation=inspect.Signature.empty)

    @wraps(handler)
    async def run(*args: Any, **kwargs: Any) -> Any:
        context: ContextRepo | None = kwargs.pop(CONTEXT, None)
        if context is None:
            return await handler(*args, **kwargs)
        message: Any = context.get_local("message")
        if is_received(context, inbox, message):
            given: Any = context.get_local(SESSION)
            return await handler(*args, **kwargs, **dict.fromkeys(sessions, given))
        subscriber = context.get_local("handler_")

        async def call(session: Any) -> Any:
            return await handler(*args, **kwargs, **dict.fromkeys(sessions, session))

        try:
            return await _received(inbox, message, subscriber, call, keeps)
        except Exception as error:
            if not is_transient(error):
                raise
            again = await put_off(inbox, error)
            if is_manual(subscriber):
                await message.nack()
            raise again from error

    run.__signature__ = signature  # type: ignore[attr-defined]  # what inspect, and with it FastStream, goes by
    return run


async def _received(
    inbox: Receiver, message: StreamMessage[Any], subscriber: Any, call: Callable[[Any], Any], keeps: bool
) -> Any:
    examine(inbox, subscriber, keeps=keeps)
    receiving = await inbox.begin(key_of(inbox, message, subscriber), reads_answer=keeps)
    if receiving.is_over:
        if is_manual(subscriber):
            await message.ack()
        if receiving.answer is None:
            raise Skipped
        inbox.replayed(receiving.key)
        return response_of(receiving.answer, message)
    acknowledging = Acknowledging(message)
    try:
        try:
            result = await call(receiving.session)
        finally:
            acknowledging.restore()
        if acknowledging.is_refused:
            await receiving.rollback()
        else:
            await receiving.commit(answer_of(result, subscriber) if keeps else None)
    except BaseException:
        await receiving.rollback()
        raise
    finally:
        await acknowledging.carry_out(is_committed=receiving.is_committed)
    return result if receiving.answer is None else response_of(receiving.answer, message)


def _signature(handler: Callable[..., Any]) -> tuple[inspect.Signature, list[str]]:
    """What FastStream is to see: no session, which is ours to give, and the context that it is taken from."""
    given = inspect.signature(handler)
    try:
        # Types of the function that the handler is defined in, as far as they are known by now.
        hints = get_type_hints(handler, localns=dict(sys._getframe(3).f_locals), include_extras=True)
    except NameError:
        hints = {}
    sessions = [name for name in given.parameters if _is_session(hints.get(name))]
    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in given.parameters.items()
        if name not in sessions
    ]
    own = inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, _Context("context")])
    place = len(parameters)
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        place -= 1
    parameters.insert(place, own)
    returned = hints.get("return", given.return_annotation)
    return given.replace(parameters=parameters, return_annotation=returned), sessions


def _is_session(hint: Any) -> bool:
    return any(isinstance(part, Context) and part.name == SESSION for part in get_args(hint)[1:])
