"""What the parameters of a handler ask for, looked at where it is registered and not when the first message fails."""

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from faststream.context import Context

from faststream_outbox._internal.broker.context import SESSION
from faststream_outbox.errors import InvalidOption


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
