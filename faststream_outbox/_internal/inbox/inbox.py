"""The inbox of one consumer: receipts and effects in one commit, for any FastStream broker and without one.

    inbox = Inbox(engine, make_inbox_table(metadata), consumer="billing")
    nats = NatsBroker(middlewares=[inbox.middleware])     # or for one handler: @inbox.once

Made by applications. FastStream is imported when one of its brokers is given the inbox.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox._internal.options import checked_flag

if TYPE_CHECKING:
    from faststream import BaseMiddleware, ContextRepo


CallT = TypeVar("CallT", bound=Callable[..., Any])


class Inbox(Receiver):
    """Lets each message take effect once."""

    def middleware(self, msg: Any, /, *, context: "ContextRepo") -> "BaseMiddleware":
        """A middleware of FastStream's, for a broker or a router: `NatsBroker(middlewares=[inbox.middleware])`."""
        from faststream_outbox._internal.inbox.middleware import InboxMiddleware

        return InboxMiddleware(msg, context=context, inbox=self)

    @overload
    def once(self, handler: CallT, /) -> CallT: ...

    @overload
    def once(self, /, *, keep_response: bool | None = None) -> Callable[[CallT], CallT]: ...

    def once(self, handler: Callable[..., Any] | None = None, /, *, keep_response: bool | None = None) -> Any:
        """Let one handler take effect once for each message, below `@broker.subscriber`; commits when it returns.

        keep_response: as for the whole inbox.
        """
        from faststream_outbox._internal.inbox.once import once

        keeps = self.keep_response if keep_response is None else checked_flag("keep_response", keep_response)
        return (lambda call: once(self, call, keeps)) if handler is None else once(self, handler, keeps)

    def check(self, *brokers: Any) -> None:
        """Refuse brokers with subscribers for which the inbox cannot keep its promise; call it once all are registered.

        brokers: those that have `middleware`, or whose handlers are all `once`.
        """
        from faststream_outbox._internal.inbox.examine import check

        check(self, brokers)
