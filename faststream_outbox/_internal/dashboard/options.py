"""What a dashboard was made with; checked once, read by every screen."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any
from urllib.parse import urlsplit

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.audit import OnAction
from faststream_outbox._internal.dashboard.content import Redact
from faststream_outbox._internal.options import check_seconds, check_text
from faststream_outbox.errors import InvalidOption

Can = Callable[[Any, Action], bool | Awaitable[bool]]
"""Whether a user may do something."""

TRACE_FIELDS = ("trace_id", "span_id", "correlation_id", "message_id", "queue", "key")


@dataclass(frozen=True, slots=True)
class Options:
    """Of one dashboard."""

    title: str = "Outbox"
    read_only: bool = False
    can: Can | None = None
    redact: Redact | None = None
    on_action: OnAction | None = None
    trace_url: str | None = None
    late_after: float = 60.0
    """Seconds after which a message that waits is shown in red."""

    def __post_init__(self) -> None:
        check_seconds("late_after", self.late_after)
        if self.trace_url is not None:
            check_text("trace_url", self.trace_url)
            _check_template(self.trace_url)


def _check_template(template: str) -> None:
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        msg = f"trace_url is no template: {error}."
        raise InvalidOption(msg) from None
    if names - set(TRACE_FIELDS) or not names:
        msg = f"trace_url takes the fields {', '.join(TRACE_FIELDS)}, e.g. 'https://traces.example/{{trace_id}}'."
        raise InvalidOption(msg)
    parts = urlsplit(template)
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in parts.netloc:
        msg = f"trace_url must begin with http:// or https:// and a host, not {template!r}."
        raise InvalidOption(msg)
