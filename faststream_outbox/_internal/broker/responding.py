"""Publishing what a handler returns while its dependencies are still open.

FastStream publishes a response after the handler's dependencies have ended: a session from a generator
dependency has committed and closed by then. So an `OutboxResponse` is published right after the
handler returns, inside of its dependencies, and its session is the one that the handler worked with.
"""

import functools
from collections.abc import Callable
from typing import Any

from fast_depends.utils import is_coroutine_callable

from faststream_outbox._internal.broker.config import OutboxBrokerConfig
from faststream_outbox._internal.broker.middlewares import pass_headers_on, take_back_ack
from faststream_outbox._internal.broker.response import OutboxResponse

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
            take_back_ack(getattr(message, "raw_message", None), error)
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
