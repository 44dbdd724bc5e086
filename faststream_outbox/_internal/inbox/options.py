"""The options of an inbox, checked where it is made. Used by both of its forms."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from faststream_outbox._internal.envelope import checked_text
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType

OnConcurrent = Literal["wait", "retry"]
OfMessage = Callable[[Any], object]
KEEP = timedelta(days=7)


def check_engine(value: object, kind: type, other: str) -> None:
    """Refuse what is no engine of this kind."""
    if not isinstance(value, kind):
        msg = f"engine must be an object of {kind.__name__}, not {type(value).__name__}: {other}."
        raise InvalidOptionType(msg)


def checked_consumer(value: object) -> str:
    """`value` as the name of a consumer."""
    try:
        return checked_text(value, "consumer")
    except InvalidMessageType as error:
        raise InvalidOptionType(str(error)) from None
    except InvalidMessage as error:
        raise InvalidOption(str(error)) from None


def checked_keep(value: object) -> timedelta | None:
    """`value` as the time for which receipts stay; None is for ever."""
    if value is None:
        return None
    if not isinstance(value, timedelta):
        msg = f"keep must be a timedelta, as in keep=timedelta(days=7), or None for ever, not {value!r}."
        raise InvalidOptionType(msg)
    if value <= timedelta(0):
        msg = f"keep must be a positive time, not {value}: receipts that go at once protect from nothing."
        raise InvalidOption(msg)
    return value


def check_function(name: str, value: object) -> None:
    """Refuse what is neither None nor a function of a message."""
    if value is not None and not callable(value):
        msg = f"{name} must be a function of a message: {name}=lambda message: message.headers['id'], not {value!r}."
        raise InvalidOptionType(msg)
