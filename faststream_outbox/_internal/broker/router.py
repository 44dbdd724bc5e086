"""Routers: groups of subscribers and publishers that a broker includes, and their delayed registration."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from fast_depends.dependencies import Dependant
from faststream import AckPolicy
from faststream.types import BrokerMiddleware, SendableMessage
from typing_extensions import Unpack

from faststream_outbox._internal.broker._faststream import (
    EMPTY,
    ArgsContainer,
    BrokerRouter,
    CodecProto,
    CustomCallable,
    SubscriberRoute,
    UnderlyingDriverAnnotations,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.options import PublisherOptions, SubscriberOptions
from faststream_outbox._internal.broker.registrator import OutboxRegistrator, check_policy
from faststream_outbox.errors import InvalidOptionType


class OutboxRoutePublisher(ArgsContainer):
    """The arguments of `publisher()`, kept for an `OutboxRoute`; see `OutboxBroker.publisher`."""

    def __init__(self, queue: str = "", **options: Unpack[PublisherOptions]) -> None:
        super().__init__(queue, **options)


class OutboxRoute(SubscriberRoute):
    """A handler and the arguments of `subscriber()`, kept until a router takes them in.

    call: the handler.
    publishers: of what it returns; the rest is as for `OutboxBroker.subscriber`.
    """

    def __init__(
        self,
        call: Callable[..., SendableMessage] | Callable[..., Awaitable[SendableMessage]],
        queues: str | list[str] | tuple[str, ...] = (),
        *,
        publishers: Iterable[OutboxRoutePublisher] = (),
        dependencies: Sequence[Dependant] = (),
        **options: Unpack[SubscriberOptions],
    ) -> None:
        super().__init__(call, queues, publishers=publishers, dependencies=dependencies, **options)


def checked_routes(handlers: object) -> list[Any]:
    """The routes given as handlers, or as prefix in earlier versions."""
    given = list(handlers) if isinstance(handlers, Iterable) else [handlers]
    for one in given:
        if not isinstance(one, SubscriberRoute):
            msg = f"prefix must be a str, and handlers a list of OutboxRoute(…), not of {type(one).__name__}."
            raise InvalidOptionType(msg)
    return given


class OutboxRouter(  # pyright: ignore[reportIncompatibleMethodOverride]  # FastStream's routers narrow these too
    OutboxRegistrator, BrokerRouter[Any, OutboxBrokerConfig]
):
    """Subscribers and publishers to include in a broker or in another router.

    prefix: stands before the names of its queues and topics.
    handlers: routes to register at once.
    dependencies: FastStream's, called before each handler.
    middlewares: FastStream's, inside of the broker's.
    routers: to include at once.
    parser, decoder, codec: how messages and bodies are read, in the place of the broker's.
    include_in_schema: whether AsyncAPI documents name what it holds.
    ack_policy: what a handler's end means, where a subscriber does not say it.
    underlying_driver_annotations: further annotations to refuse with a hint.
    """

    def __init__(
        self,
        prefix: str | Iterable[OutboxRoute] = "",
        handlers: Iterable[OutboxRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[OutboxRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        check_policy(ack_policy)
        if not isinstance(prefix, str):
            # Handlers first, as earlier versions had it: OutboxRouter([OutboxRoute(…)]).
            handlers, prefix = prefix, ""
        handlers = checked_routes(handlers)
        super().__init__(
            config=OutboxBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                include_in_schema=include_in_schema,
                underlying_driver_annotations=underlying_driver_annotations or {},
            ),
            handlers=handlers,
            routers=routers,
        )
