"""What a broker logs: FastStream's access log with our columns, and beside it the event log of its engines.

Both go to the broker's logger. `logger=None` turns the access log off and not the other: what an operator must see then
goes to the logger `faststream_outbox`. So does what happens before FastStream has made the broker's logger. Made by the
broker.
"""

import logging
from collections.abc import Mapping
from typing import Any

from faststream.context import ContextRepo
from faststream.types import LoggerProto

from faststream_outbox._internal.broker._faststream import (
    DefaultLoggerStorage,
    LoggerState,
    get_broker_logger,
    make_logger_state,
)
from faststream_outbox._internal.outcomes.failure import Renderer, saying

MESSAGE_ID_LENGTH = 10


class OutboxParamsStorage(DefaultLoggerStorage):
    """Remembers how wide the queue column must be."""

    def __init__(self) -> None:
        super().__init__()
        self._queue_length = 5
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        """The level of the log."""
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for a subscriber's queues."""
        self._queue_length = max(self._queue_length, len(params.get("queue", "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """The log."""
        logger = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="outbox",
                default_context={"queue": ""},
                message_id_ln=MESSAGE_ID_LENGTH,
                fmt=(
                    "%(asctime)s %(levelname)-8s - "
                    f"%(queue)-{self._queue_length}s | %(message_id)-{MESSAGE_ID_LENGTH}s - %(message)s"
                ),
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


class RenderingLoggerState(LoggerState):
    """Says of errors what a renderer makes of them, and prints no traceback, which would end with their own text."""

    __slots__ = ("_say",)

    def __init__(self, log_level: int, storage: Any, renderer: Renderer) -> None:
        super().__init__(log_level, storage)
        self._say = saying(renderer)

    def log(
        self,
        message: str,
        log_level: int | None = None,
        extra: dict[str, Any] | None = None,
        exc_info: BaseException | None = None,
    ) -> None:
        """Write a record."""
        if exc_info is not None:
            message = f"{type(exc_info).__name__}: {self._say(exc_info)}"
        super().log(message, log_level, extra)


def make_outbox_logger_state(
    logger: LoggerProto | None, log_level: int, renderer: Renderer | None = None
) -> LoggerState:
    """Where a broker logs to."""
    state = make_logger_state(logger, log_level, default_storage_cls=OutboxParamsStorage)
    return state if renderer is None else RenderingLoggerState(log_level, state.params_storage, renderer)


fallback = logging.getLogger("faststream_outbox")


class EngineLog:
    """Writes to the logger that the broker has at the moment."""

    def __init__(self, state: LoggerState) -> None:
        self._state = state

    def log(self, level: int, msg: Any, /, *, exc_info: Any = None, extra: Mapping[str, Any] | None = None) -> None:
        """Write a record, with the columns of the access log."""
        logger = self._state.logger.logger
        if logger is None:
            fallback.log(level, msg, exc_info=exc_info, extra=extra)
            return
        # Else FastStream would fill in those of the message that is being handled at the moment.
        columns = {"queue": (extra or {}).get("outbox_queue", ""), "message_id": ""}
        logger.log(level, msg, exc_info=exc_info, extra={**columns, **(extra or {})})
