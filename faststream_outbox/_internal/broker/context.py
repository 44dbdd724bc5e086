"""What handlers find in FastStream's context: the names there, and a `Context` that stays in the event loop.

`faststream_outbox.annotations` makes the shortcuts of it that applications use.
"""

from typing import Any

from faststream.context import Context as PlainContext

SESSION = "outbox_session"
"""Where a transactional handler's session stands."""


class Context(PlainContext):
    """FastStream's `Context`, resolved without leaving the event loop."""

    async def use(self, /, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # the resolver awaits coroutines
        """Put the value among the handler's arguments."""
        return super().use(**kwargs)
