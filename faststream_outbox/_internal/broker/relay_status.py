"""How the broker's relays are, for operators and metrics. A thin call of `faststream_outbox.relay.status`."""

from typing import TYPE_CHECKING, Any

from faststream_outbox._internal.relay.status import RelayStatus, relay_status

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.config import OutboxBrokerConfig
    from faststream_outbox._internal.queue.client import OutboxClient
    from faststream_outbox._internal.relay.relay import Relay

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class RelayStatusMixin(Home):
    """`relay_status`."""

    if TYPE_CHECKING:

        @property
        def relays(self) -> list[Relay]: ...

    async def relay_status(self) -> list[RelayStatus]:
        """Each relay, once for each broker that it sends to: whether that answers, and how old the oldest message is.

        Asks the database on a connection of its own; also where the broker was not started.
        """
        return await relay_status(self.relays, self.config.broker_config.backend.relay_ages)
