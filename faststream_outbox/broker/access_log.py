"""FastStream's access log with our columns: the queue and the message's id."""

import logging
from functools import partial
from typing import Any

from faststream.context import ContextRepo
from faststream.types import LoggerProto

from faststream_outbox.broker._faststream import DefaultLoggerStorage, get_broker_logger, make_logger_state

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


make_outbox_logger_state = partial(make_logger_state, default_storage_cls=OutboxParamsStorage)
