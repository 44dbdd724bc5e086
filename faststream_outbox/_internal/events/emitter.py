"""`Events`: hands each event to every listener that asked for its type.

A listener that raises is reported once per type of error to the log and never disturbs the engine. Building an event
costs time on the hot path, so engines ask `if Handled in events` first.
"""

import logging
from collections.abc import Callable
from typing import Any, get_args

from faststream_outbox._internal.connections.cause import hide_parameters
from faststream_outbox._internal.events.types import Event
from faststream_outbox.errors import InvalidOptionType

Listener = Callable[[Any], None]
"""A function that is called with an event."""

logger = logging.getLogger("faststream_outbox")


def checked_events(given: object) -> "Events":
    """The events that were given, or new ones."""
    if given is None:
        return Events()
    if not isinstance(given, Events):
        msg = f"events must be an Events(), not a {type(given).__name__}."
        raise InvalidOptionType(msg)
    return given


def _is_type(given: object) -> bool:
    return isinstance(given, type)


class Events:
    """Who hears what."""

    __slots__ = ("_complained", "_listeners")

    def __init__(self) -> None:
        self._listeners: dict[type[Any], list[Listener]] = {}
        self._complained: set[tuple[int, type[Exception]]] = set()

    def subscribe(self, listener: Listener, *types: type[Any]) -> Callable[[], None]:
        """Call `listener` with each event of `types` (all, if none are given); returns what undoes it."""
        given: object = listener
        if not callable(given):
            msg = f"listener must be a function that takes an event, not a {type(given).__name__}."
            raise InvalidOptionType(msg)
        for kind in types:
            if not _is_type(kind):
                msg = f"types must be classes of events, such as events.Handled, not a {type(kind).__name__}."
                raise InvalidOptionType(msg)
        for kind in types or get_args(Event):
            self._listeners.setdefault(kind, []).append(listener)

        def unsubscribe() -> None:
            for heard in self._listeners.values():
                if listener in heard:
                    heard.remove(listener)

        return unsubscribe

    def __contains__(self, kind: type[Any]) -> bool:
        return bool(self._listeners.get(kind))

    def emit(self, event: Event) -> None:
        """Tell every listener of the event's type."""
        for listener in tuple(self._listeners.get(type(event), ())):
            try:
                listener(event)
            except Exception as error:
                complaint = (id(listener), type(error))
                if complaint not in self._complained:
                    self._complained.add(complaint)
                    hide_parameters(error)
                    logger.exception(
                        "A listener of outbox events raised on %s; the engine goes on.", type(event).__name__
                    )
