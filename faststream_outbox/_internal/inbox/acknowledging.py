"""Acknowledgements that a handler makes by hand: remembered, and carried out after the commit.

An ack that is sent before the commit is a message lost, should the process die between the two. FastStream's own
acknowledgement comes last anyway. Used by the middleware and by `once`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from faststream import AckPolicy
from faststream.message import StreamMessage

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
