"""Routers: groups of subscribers and publishers that a broker includes, and their delayed registration."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from fast_depends.dependencies import Dependant
from faststream import AckPolicy
from faststream.types import BrokerMiddleware, SendableMessage

from faststream_outbox.broker._faststream import (
    EMPTY,
    ArgsContainer,
    BrokerRouter,
    CodecProto,
    CustomCallable,
    SubscriberRoute,
    UnderlyingDriverAnnotations,
)
from faststream_outbox.broker.config import OutboxBrokerConfig
from faststream_outbox.broker.registrator import OutboxRegistrator, check_policy
from faststream_outbox.log.options import MAX_DEFERRED, Start
from faststream_outbox.outcomes.outcome import OnUndecided
from faststream_outbox.outcomes.retry import RetryStrategyProto
from faststream_outbox.queue.options import OnDead, OnLeaseLost, TerminalHook


class OutboxRoutePublisher(ArgsContainer):
    """The arguments of `publisher()`, kept for an `OutboxRoute`; see `OutboxBroker.publisher`."""

    def __init__(
        self,
        queue: str = "",
        *,
        topic: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        key: str | None = None,
        priority: int = 0,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(
            queue,
            topic=topic,
            headers=headers,
            reply_to=reply_to,
            key=key,
            priority=priority,
            persistent=persistent,
            title=title,
            description=description,
            schema=schema,
            include_in_schema=include_in_schema,
        )


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
        topic: str | list[str] | tuple[str, ...] | None = None,
        group: str | None = None,
        start: Start = "earliest",
        max_deferred: int = MAX_DEFERRED,
        max_workers: int = 1,
        retry_strategy: RetryStrategyProto | None = None,
        fetch_batch_size: int = 10,
        min_fetch_interval: float = 1.0,
        max_fetch_interval: float = 10.0,
        lease_ttl_seconds: float = 60.0,
        max_deliveries: int | None = None,
        crash_limit: int | None = None,
        terminal_flush_batch_size: int = 1,
        batch: bool = False,
        batch_size: int | None = None,
        batch_wait: float = 0.0,
        transactional: bool = False,
        on_dead: OnDead = "continue",
        handler_timeout: float | None = None,
        on_lease_lost: OnLeaseLost = "continue",
        on_undecided: OnUndecided = "retry",
        on_terminal_failure: TerminalHook | None = None,
        propagate_inbound_headers: bool = False,
        ack_policy: AckPolicy | None = None,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        title_: str | None = None,
        description_: str | None = None,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(
            call,
            queues,
            publishers=publishers,
            topic=topic,
            group=group,
            start=start,
            max_deferred=max_deferred,
            max_workers=max_workers,
            retry_strategy=retry_strategy,
            fetch_batch_size=fetch_batch_size,
            min_fetch_interval=min_fetch_interval,
            max_fetch_interval=max_fetch_interval,
            lease_ttl_seconds=lease_ttl_seconds,
            max_deliveries=max_deliveries,
            crash_limit=crash_limit,
            terminal_flush_batch_size=terminal_flush_batch_size,
            batch=batch,
            batch_size=batch_size,
            batch_wait=batch_wait,
            transactional=transactional,
            on_dead=on_dead,
            handler_timeout=handler_timeout,
            on_lease_lost=on_lease_lost,
            on_undecided=on_undecided,
            on_terminal_failure=on_terminal_failure,
            propagate_inbound_headers=propagate_inbound_headers,
            ack_policy=ack_policy,
            no_reply=no_reply,
            dependencies=dependencies,
            parser=parser,
            decoder=decoder,
            codec=codec,
            persistent=persistent,
            title=title or title_,
            description=description or description_,
            include_in_schema=include_in_schema,
        )


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
