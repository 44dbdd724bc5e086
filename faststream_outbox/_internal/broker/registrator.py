"""`subscriber()` and `publisher()`, as brokers and routers have them.

Options are checked here, so that an error or a warning points at the line that registers the handler.
"""

from collections.abc import Sequence
from typing import Any, cast

from fast_depends.dependencies import Dependant
from faststream import AckPolicy
from faststream.types import BrokerMiddleware
from typing_extensions import override

from faststream_outbox._internal.broker._faststream import (
    EMPTY,
    CallsCollection,
    CodecProto,
    CustomCallable,
    Registrator,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.publisher import OutboxPublisher, OutboxPublisherConfig
from faststream_outbox._internal.broker.relaying import RelayingMixin
from faststream_outbox._internal.broker.response import destination_of
from faststream_outbox._internal.broker.specification import (
    OutboxPublisherSpecification,
    OutboxPublisherSpecificationConfig,
    OutboxSubscriberSpecification,
    OutboxSubscriberSpecificationConfig,
)
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber, OutboxSubscriberConfig
from faststream_outbox._internal.broker.topic import (
    check_only_topics,
    check_priority,
    check_topic_options,
    checked_crash_limit,
    checked_topics,
)
from faststream_outbox._internal.broker.warn import warn, warn_about_options, warn_about_shared
from faststream_outbox._internal.envelope import checked_queue, header_mapping
from faststream_outbox._internal.log.options import MAX_DEFERRED, Start, check_start
from faststream_outbox._internal.log.sharing.slots import checked_uri
from faststream_outbox._internal.options import check_count
from faststream_outbox._internal.outcomes.outcome import OnUndecided
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY, RetryStrategyProto
from faststream_outbox._internal.queue.options import OnDead, OnLeaseLost, TerminalHook, WorkerOptions, checked_queues
from faststream_outbox.errors import InvalidOption, InvalidOptionType


class OutboxRegistrator(RelayingMixin, Registrator[Any, OutboxBrokerConfig]):
    """What can register subscribers, publishers and relays."""

    @override
    def subscriber(  # type: ignore[override]  # options by name, as each broker of FastStream has its own
        self,
        queues: str | list[str] | tuple[str, ...] = (),
        *,
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
    ) -> OutboxSubscriber:
        """Handle messages of a queue, or of several with fair shares; or, as a group, those of a topic.

        queues: the queue's name, or several names.
        topic: a topic instead of queues, or several; needs a group.
        group: who reads the topic; each group reads all of it.
        start: where a group begins that has never read: "earliest", "latest", or a time with a time zone.
        max_deferred: so many messages of a topic may wait behind one of their key; then its slot stops.
        max_workers: how many handlers run at the same time in this process.
        retry_strategy: when a failed message comes again; None is ten attempts within about nine minutes.
        fetch_batch_size: most messages in one claim.
        min_fetch_interval: seconds between full scans while there is work.
        max_fetch_interval: the same when idle.
        lease_ttl_seconds: how long a claim holds without renewal.
        max_deliveries: a dead letter after so many claims; None is no limit.
        crash_limit: a dead letter after so many claims without an outcome.
        terminal_flush_batch_size: without effect; outcomes are always written together.
        batch: hand a list of messages to the handler.
        batch_size: most messages of a batch; None takes fetch_batch_size.
        batch_wait: seconds to wait for a batch to fill.
        transactional: give the handler a session whose commit also ends the message.
        on_dead: whether the next messages of a key go on ("continue") or wait ("block") after one died.
        handler_timeout: seconds after which a handler is cancelled and has failed; None is no limit.
        on_lease_lost: whether a handler that lost its lease goes on ("continue") or is cancelled ("cancel").
        on_undecided: what no decision means: "retry", "release", "done" or "dead".
        on_terminal_failure: called with the claim before it becomes a dead letter; None takes the broker's.
        propagate_inbound_headers: pass the message's headers on to what the handler returns.
        ack_policy: what a handler's end means; None takes the broker's, else NACK_ON_ERROR.
        no_reply: send no answer to reply_to.
        dependencies: FastStream's, called before the handler.
        parser: makes the message of a claim, in the place of ours.
        decoder: makes the body of the message.
        codec: encodes and decodes bodies, in the place of the broker's.
        persistent: False lets the subscriber vanish with its last reference.
        title: its name in AsyncAPI documents; `title_` is the same.
        description: its description there; `description_` is the same.
        title_: as `title`.
        description_: as `description`.
        include_in_schema: whether AsyncAPI documents name it.
        """
        check_count("terminal_flush_batch_size", terminal_flush_batch_size)
        if topic is None:
            check_only_topics(group, start, max_deferred)
        else:
            self._check_topics()
        names = _checked_names(queues) if topic is None else checked_topics(topic, group, queues)
        policy = EMPTY if ack_policy is None else ack_policy
        check_policy(policy)
        options = WorkerOptions(
            max_workers=max_workers,
            fetch_batch_size=fetch_batch_size,
            min_fetch_interval=min_fetch_interval,
            max_fetch_interval=max_fetch_interval,
            lease_ttl_seconds=lease_ttl_seconds,
            max_deliveries=max_deliveries,
            crash_limit=checked_crash_limit(crash_limit, topic),
            retry_strategy=DEFAULT_RETRY if retry_strategy is None else retry_strategy,
            on_undecided=on_undecided,
            handler_timeout=handler_timeout,
            on_lease_lost=on_lease_lost,
            on_dead=on_dead,
            on_terminal_failure=on_terminal_failure or self._terminal_hook,
            batch=batch,
            batch_size=batch_size,
            batch_wait=batch_wait,
        )
        if topic is not None:
            check_topic_options(options, has_hook=on_terminal_failure is not None)
            check_start(start)
            check_count("max_deferred", max_deferred, most=1_000_000)
        config = cast("OutboxBrokerConfig", self.config)
        usecase = OutboxSubscriberConfig(
            _outer_config=config,
            _ack_policy=policy,
            sends_replies=not no_reply,
            queues=names,
            group=group,
            start=start,
            max_deferred=max_deferred,
            options=options,
            transactional=transactional,
            propagate_inbound_headers=propagate_inbound_headers,
        )
        warn_about_options(
            options,
            has_strategy=retry_strategy is not None,
            policy=usecase.ack_policy.value,
            is_explicit=policy is not EMPTY,
            reads_topic=group is not None,
        )
        warn_about_shared([f"{config.prefix}{name}" for name in names], group, self._neighbours())
        calls: CallsCollection[Any] = CallsCollection()
        specification = OutboxSubscriberSpecification(
            config,
            OutboxSubscriberSpecificationConfig(
                queues=names,
                title_=title or title_,
                description_=description or description_,
                include_in_schema=include_in_schema,
            ),
            calls,
        )
        subscriber = OutboxSubscriber(usecase, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def _check_topics(self) -> None:
        """Refuse topics where there is no table for them; a router learns of it when its broker starts."""

    def _terminal_hook(self, claim: Any) -> Any:
        # Late: a router's subscriber learns of its broker, and of the broker's hook, only when it is included.
        hook = getattr(self.config, "on_terminal_failure", None)
        return None if hook is None else hook(claim)

    def _neighbours(self) -> list[Any]:
        """All subscribers that run together with those of this one, as far as routers are included by now."""
        root: Any = self
        while root.parent is not None:
            root = root.parent
        return [*root.subscribers, *root.relays]

    @override
    def publisher(  # type: ignore[override]  # the same
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
    ) -> OutboxPublisher:
        """Publish to a queue or a topic: as an object, or as a decorator that publishes what a handler returns.

        queue: where to; or else
        topic: the topic that every group reads.
        headers: of each message; those of a call are added, and win.
        reply_to: the queue for answers.
        key: messages of one key are handled in order.
        priority: larger numbers first; queues only.
        persistent: False lets the publisher vanish with its last reference.
        title: its name in AsyncAPI documents.
        description: its description there.
        schema: the type of its messages there, where a handler's annotation does not say it.
        include_in_schema: whether AsyncAPI documents name it.
        """
        destination, is_topic = destination_of(queue, topic, is_needed=True)
        check_priority(topic, priority)
        if is_topic:
            self._check_topics()
        config = cast("OutboxBrokerConfig", self.config)
        publisher = OutboxPublisher(
            OutboxPublisherConfig(
                _outer_config=config,
                queue=checked_uri(destination, "topic") if is_topic else checked_queue(destination),
                is_topic=is_topic,
                headers=header_mapping(headers or {}),
                reply_to=reply_to,
                key=key,
                priority=priority,
            ),
            OutboxPublisherSpecification(
                config,
                OutboxPublisherSpecificationConfig(
                    queue=destination,
                    schema_=schema,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

    @override
    def include_router(  # pyright: ignore[reportIncompatibleMethodOverride]  # only routers of our own fit
        self,
        router: "OutboxRegistrator",  # type: ignore[override]  # the same
        *,
        prefix: str = "",
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Take in a router's subscribers and publishers.

        router: an OutboxRouter.
        prefix: stands before the names of its queues and topics.
        dependencies: FastStream's, for each of its subscribers.
        middlewares: for each of its subscribers and publishers, inside of the broker's.
        include_in_schema: whether AsyncAPI documents name what it holds; None leaves it to the router.
        """
        _check_router(router)
        if router.parent is self:
            return
        ours = self._neighbours()
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
        for subscriber in router.subscribers:
            if isinstance(subscriber, OutboxSubscriber):
                warn_about_shared(subscriber.queues, subscriber.group, ours)


def check_policy(policy: AckPolicy) -> None:
    """Refuse the policy that loses messages."""
    if policy is AckPolicy.ACK_FIRST:
        msg = (
            "AckPolicy.ACK_FIRST would delete a message before its handler runs, so that a crash loses it. "
            "Use NACK_ON_ERROR, REJECT_ON_ERROR, ACK or MANUAL."
        )
        raise InvalidOption(msg)


def _check_router(router: object) -> None:
    if not isinstance(router, OutboxRegistrator):
        msg = f"Only an OutboxRouter can be included here, not a {type(router).__name__}."
        raise InvalidOptionType(msg)


def _checked_names(queues: object) -> tuple[str, ...]:
    if not isinstance(queues, str | list | tuple):
        msg = f"A subscriber takes a queue's name or a list of names, not a {type(queues).__name__}."
        raise InvalidOptionType(msg)
    if not queues:
        msg = (
            "A subscriber needs to know what to read: subscriber('orders') for a queue, "
            "or subscriber(topic='shop', group='billing')."
        )
        raise InvalidOption(msg)
    names = checked_queues(queues)
    for name in names:
        if ":" in name:
            warn(
                f"Queue {name!r} contains a colon, which FastStream's AsyncAPI documents, try-it-out and "
                "`faststream publish` take for a separator. Choose a name without one."
            )
    return names
