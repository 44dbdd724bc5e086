"""The groups of the broker's topics, for operators: to list, to pause, to resume, to delete, and what they deferred.

Thin calls of `faststream_outbox.log.admin.groups` and `faststream_outbox.log.deferral.parked`, which know the tables.
The backend makes them.
"""

from typing import TYPE_CHECKING, Any

from faststream.exceptions import IncorrectState

from faststream_outbox._internal.broker.backend import Backend
from faststream_outbox._internal.broker.topic import WITHOUT_LOG
from faststream_outbox._internal.log.admin.groups import Groups
from faststream_outbox._internal.log.deferral.parked import Parking

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.config import OutboxBrokerConfig
    from faststream_outbox._internal.queue.client import OutboxClient

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class GroupsMixin(Home):
    """`groups` and `parked`."""

    @property
    def groups(self) -> Groups:
        """Groups of topics, in every process: `list`, `pause`, `resume`, `paused` and `delete`."""
        return self._backend.groups

    @property
    def parked(self) -> Parking:
        """Messages of topics that failed for good, or wait: `list`, `retry`, `resolve` and `skip`."""
        return self._backend.parked

    @property
    def _backend(self) -> Backend:
        config = self.config.broker_config
        if config.own_backend is None:
            raise IncorrectState(WITHOUT_LOG)
        return config.backend
