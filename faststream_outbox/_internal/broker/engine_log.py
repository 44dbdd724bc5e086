"""Where a broker's engines write their event log: to the broker's own logger, beside the access log.

`logger=None` turns the access log off and not this one: what an operator must see then goes to the logger
`faststream_outbox`. So does what happens before FastStream has made the broker's logger. Made by the broker.
"""

import logging
from collections.abc import Mapping
from typing import Any

from faststream_outbox._internal.broker._faststream import LoggerState

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
