"""The subscriber: a thin shell that hands the engine one coroutine.

Takes a claim, calls FastStream's own `consume`, and answers with what `Deciding` finds on the claim. Claiming,
concurrency, leases, retries and stopping are the engine's. Where handlers forward to other brokers, it consumes only
while these run. `get_one` and iteration are refused: they would lease messages that nobody handles. Made by the
registrator, started and stopped by the broker.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from faststream import AckPolicy
from faststream.exceptions import FeatureNotSupportedException
from faststream.message import StreamMessage
from faststream.types import BrokerMiddleware
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.broker._faststream import (
    EMPTY,
    CallsCollection,
    SubscriberSpecification,
    SubscriberUsecase,
    SubscriberUsecaseConfig,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.forwarding import Forwarding
from faststream_outbox._internal.broker.message import (
    REPLY_TO,
    Deciding,
    OutboxBatchParser,
    OutboxParser,
    Received,
    claims_of,
)
from faststream_outbox._internal.broker.middlewares import (
    OutboxMiddleware,
    check_session,
    in_thread,
    keep_callable,
    publishing_responses,
)
from faststream_outbox._internal.broker.publisher import OutboxReplyPublisher, OutboxResponsePublisher
from faststream_outbox._internal.broker.warn import warn_about_manual_handler
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.options import MAX_DEFERRED, ReadOptions, Start
from faststream_outbox._internal.log.sharing.slots import Group, checked_group, checked_uri
from faststream_outbox._internal.outcomes.calling import limited
from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.outcome import RELEASE, Outcome
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.relay.gate import HOLD_SECONDS, open_then
from faststream_outbox._internal.service import Service

if TYPE_CHECKING:
    from faststream_outbox._internal.log.worker import LogWorker

READ_AHEAD = 100
"""How many messages of a topic are read at once, at least."""


@dataclass(kw_only=True)
class OutboxSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber is made of."""

    _outer_config: OutboxBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream does
    queues: tuple[str, ...]
    """The queues; or the topics, of which none holds another."""
    options: WorkerOptions
    group: str | None = None
    """The consumer group, of a topic's subscriber."""
    start: Start = "earliest"
    max_deferred: int = MAX_DEFERRED
    transactional: bool = False
    propagate_inbound_headers: bool = False
    sends_replies: bool = True
    """Not `no_reply`: under that one, FastStream would not publish a response with a queue of its own either."""
    hooks: dict[str, Any] = field(default_factory=dict)

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's own, else the broker's, else NACK_ON_ERROR: an outbox does not drop on failure."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR

    @property
    def auto_ack_disabled(self) -> bool:
        """Whether the handler decides alone; true or false only when it is asked for."""
        return cast("bool", _IsManual(self))


class _IsManual:
    """FastStream asks when the subscriber is made, before a router's one knows its broker: so the answer comes late."""

    def __init__(self, config: OutboxSubscriberConfig) -> None:
        self._config = config

    def __bool__(self) -> bool:
        return self._config.ack_policy is AckPolicy.MANUAL


class OutboxSubscriber(SubscriberUsecase[Any]):
    """Handles messages of one or several queues."""

    _outer_config: OutboxBrokerConfig

    def __init__(
        self,
        config: OutboxSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Any],
    ) -> None:
        if config.options.batch:
            batches = OutboxBatchParser()
            config.parser, config.decoder = batches.parse_batch, batches.decode_batch
        else:
            singles = OutboxParser()
            config.parser, config.decoder = singles.parse_message, singles.decode_message
        self._usecase = config
        super().__init__(config, specification, calls)
        self._queues = config.queues
        self.options: WorkerOptions = config.options
        self.is_transactional: bool = config.transactional
        self.is_stopping: bool = False
        self._knows_to_be_manual = False
        self.group: str | None = config.group
        self.propagates_headers: bool = config.propagate_inbound_headers
        self.worker: Worker | LogWorker | None = None
        self._forwarding: Forwarding | None = None
        self._opening: Service | None = None
        self._call_decorators = (publishing_responses(config._outer_config), in_thread)

    @property
    def ack_policy(self) -> AckPolicy:
        """What a handler's end means; a router's subscriber learns of its broker's policy when it is included."""
        return self._usecase.ack_policy

    @ack_policy.setter
    def ack_policy(self, policy: AckPolicy) -> None:
        """FastStream sets it too early; see `_IsManual`."""

    @property
    def is_manual(self) -> bool:
        """Whether the handler decides alone."""
        return self.ack_policy is AckPolicy.MANUAL

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues, with the prefixes of the routers around them."""
        return tuple(f"{self._outer_config.prefix}{queue}" for queue in self._queues)

    @property
    def _broker_middlewares(self) -> Sequence[BrokerMiddleware[Any, Any]]:
        # Ours is not one of the broker's list, which is the application's to read and to change.
        return (OutboxMiddleware, *super()._broker_middlewares)

    if not TYPE_CHECKING:
        # FastStream's overloads, which keep the handler's signature, must stay visible to type checkers.
        def __call__(self, func: Callable[..., Any] | None = None, **options: Any) -> Any:
            """Register a handler."""
            if func is None:
                return partial(self.__call__, **options)
            if self.is_manual:
                warn_about_manual_handler(func)
                self._knows_to_be_manual = True
            if not self.is_transactional:
                check_session(func)
            return super().__call__(func, **options)

    async def start(self) -> None:
        """Begin to consume, unless already running."""
        # Not `running` alone: a test broker with the real one marks subscribers before they start.
        if self.running and (self.worker is not None or not self.calls):
            return
        self.is_stopping = False
        await super().start()
        # Before the first message arrives: `consume` ignores messages of a subscriber that does not run.
        self._post_start()
        if self.calls and self.group is None:
            self.worker = self.make_worker()
        elif self.calls and self.group is not None:
            self.worker = self._make_topic_worker(self.group)
        if self.worker is None:
            return
        if self._outer_config.backend.reaches_other_brokers:
            forwarding = Forwarding(self.calls)
            forwarding.warn(self.ack_policy)
            self._forwarding = forwarding or None
        if self.can_forward:
            await self.worker.start()
        else:
            self._opening = Service(f"outbox start of {self.specification.call_name}", self._open, self._crashed)
            self._opening.start()

    @property
    def can_forward(self) -> bool:
        """Whether the brokers run that handlers forward to; so too where there are none."""
        return not self._forwarding or self._forwarding.is_open

    async def _can_forward_soon(self, seconds: float) -> bool:
        return not self._forwarding or await self._forwarding.opened(seconds, lambda: self.worker is None)

    async def _open(self) -> None:
        """Begin to consume as soon as the brokers run that handlers forward to."""
        await open_then(self._can_forward_soon, self._say_it_waits, self._consume)

    def _say_it_waits(self) -> None:
        missing = "" if self._forwarding is None else self._forwarding.missing
        waiting = f"`{self.specification.call_name}` does not consume yet. {missing}"
        self._log(logging.ERROR, waiting, self.get_log_context(None))

    async def _consume(self) -> None:
        if self.worker is not None:
            await self.worker.start()

    def _crashed(self, name: str, error: BaseException) -> None:
        self._outer_config.client.events.emit(events.LoopCrashed(name, error))

    def _post_start(self) -> None:
        if self.is_manual and not self._knows_to_be_manual:
            self._knows_to_be_manual = True
            for item in self.calls:
                warn_about_manual_handler(item.handler._declared_call, at_handler=True)
        for item in self.calls:
            keep_callable(item.handler)
        super()._post_start()

    def make_worker(self) -> Worker:
        """The engine's worker for this subscriber."""
        client = self._outer_config.client
        return Worker(
            client.engine,
            client.table,
            self.queues,
            self.handle_batch if self.options.batch else self.handle,
            client=client,
            name=self.specification.call_name,
            options=self.options,
        )

    def _make_topic_worker(self, group: str) -> "LogWorker | None":
        options = self.options
        read = ReadOptions(
            # A statement for ten messages would be a waste; nothing is leased by reading ahead.
            batch_size=options.most_per_call if options.batch else max(READ_AHEAD, options.fetch_batch_size),
            lease_ttl_seconds=options.lease_ttl_seconds,
            retry_strategy=options.retry_strategy,
            on_parked="hold_key" if options.on_dead == "block" else "skip",
            poll_interval=options.min_fetch_interval,
            crash_limit=options.crash_limit,
            start=self._usecase.start,
            max_deferred=self._usecase.max_deferred,
        )
        return self._outer_config.backend.make_topic_worker(
            [Group(checked_group(group), checked_uri(topic, "topic")) for topic in self.queues],
            limited(self.handle_batch if options.batch else self.handle, options.handler_timeout),
            options=read,
            members=options.max_workers,
            batch=options.batch,
            name=self.specification.call_name,
        )

    async def stop(self) -> None:
        """Let running handlers finish, give back what has not started, and consume no more."""
        self.is_stopping = True
        worker, self.worker = self.worker, None
        opening, self._opening = self._opening, None
        if opening is not None:
            await opening.stop()
        if worker is not None:
            await worker.stop(self._outer_config.graceful_timeout or 0.0)
        await super().stop()

    def leave(self) -> None:
        """Forget what ran in an event loop that has ended."""
        self.running: bool = False
        self.worker = None

    async def handle(self, claim: Received) -> Outcome:
        """Consume one message, for the engine."""
        [outcome] = await self._handled(claim)
        return outcome

    async def handle_batch(self, claims: Sequence[Received]) -> list[Outcome]:
        """Consume a batch, for the engine."""
        return await self._handled(claims)

    async def _handled(self, raw: Received | Sequence[Received]) -> list[Outcome]:
        claims = claims_of(raw)
        # FastStream would drop a message of a subscriber that does not run without a word.
        if not self.running or (self._forwarding and not await self._can_forward_soon(HOLD_SECONDS)):
            return [RELEASE] * len(claims)
        try:
            await self.consume(raw)
        except ENDING:
            raise
        except BaseException:
            # FastStream lets pass what is no Exception; the ack policy has decided all the same.
            if Deciding(claims, is_manual=self.is_manual).is_open:
                raise
        return Deciding.outcomes(claims)

    def open_session(self) -> AsyncSession:
        """A session for a transactional handler."""
        return self._outer_config.client.open_session()

    async def begin_within(self, session: AsyncSession, claims: Sequence[Received]) -> None:
        """Begin a handler's own transaction, or raise `LeaseLost`."""
        batch_run = next((claim.batch_run for claim in claims if isinstance(claim, Delivery)), None)
        if batch_run is None:
            of_queue = [claim for claim in claims if isinstance(claim, Claim)]
            await self._outer_config.client.begin_within(session, *of_queue)
        else:
            await batch_run.begin_within(session)

    def conflicted(self) -> None:
        """A handler's transaction was in conflict with another one."""
        self._outer_config.backend.conflicted(reads_topic=self.group is not None)

    async def settle_within(self, session: AsyncSession, claims: Sequence[Received]) -> None:
        """Finish messages in a handler's own transaction, or raise `LeaseLost`."""
        of_topic = [claim for claim in claims if isinstance(claim, Delivery)]
        if not of_topic:
            await self._outer_config.client.settle_within(
                session, *(claim for claim in claims if isinstance(claim, Claim))
            )
        elif of_topic[0].batch_run is not None:
            await of_topic[0].batch_run.settle_within(session, of_topic)

    async def commit(self, session: AsyncSession, deciding: Deciding) -> None:
        """Commit a handler's own transaction; raises only if that has not come about."""
        claims = deciding.claims
        batch_run = next((claim.batch_run for claim in claims if isinstance(claim, Delivery)), None)
        if batch_run is None:
            await self._outer_config.client.commit(session, *(claim for claim in claims if isinstance(claim, Claim)))
        else:
            await batch_run.commit(session)
        deciding.committed()

    def _make_response_publisher(
        self, message: StreamMessage[Any]
    ) -> Iterable[OutboxResponsePublisher | OutboxReplyPublisher]:
        producer = self._outer_config.producer
        yield OutboxResponsePublisher(producer=producer)
        reply_to = message.headers.get(REPLY_TO)
        if reply_to and self._usecase.sends_replies:
            yield OutboxReplyPublisher(producer=producer, reply_to=str(reply_to))

    async def get_one(self, *, timeout: float = 5.0) -> NoReturn:
        """Refused: it would take a lease that nobody gives back."""
        raise FeatureNotSupportedException(_NO_PEEKING)

    def __aiter__(self) -> AsyncIterator[StreamMessage[Any]]:
        """Refused: it would take leases that nobody gives back."""
        raise FeatureNotSupportedException(_NO_PEEKING)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """Queue and message id, for the access log."""
        raw = None if message is None else message.raw_message
        first = raw[0] if isinstance(raw, list | tuple) and raw else raw
        queue = first.queue if isinstance(first, Received) else ",".join(self.queues)
        return {"queue": queue, "message_id": getattr(message, "message_id", "")}


_NO_PEEKING = (
    "A subscriber of an outbox has no get_one() and cannot be iterated: reading would lease messages and count "
    "deliveries. To look at messages without leasing them use broker.fetch_unprocessed(session=…, queue=…)."
)
