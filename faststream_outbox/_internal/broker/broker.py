"""`OutboxBroker`: FastStream's broker on the queue engine.

Publishes in the caller's transaction, consumes with workers of the engine. Never closes an engine that it was
given; one that it made of an address is its own, and closed by `stop`. `start` and `stop` may be called in any
order and more than once; `async with broker` connects and does not consume.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream import AckPolicy, UnderlyingDriverAnnotation
from faststream.context import ContextRepo
from faststream.message import gen_cor_id
from faststream.security import BaseSecurity
from faststream.specification.schema import BrokerSpec, Tag, TagDict
from faststream.types import BrokerMiddleware, LoggerProto
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from typing_extensions import override

from faststream_outbox._internal.broker._faststream import (
    EMPTY,
    BrokerUsecase,
    CodecProto,
    CustomCallable,
    FastDependsConfig,
    IdGenerator,
    UnderlyingDriverAnnotations,
)
from faststream_outbox._internal.broker.backend import DatabaseBackend, OutboxBrokerConfig
from faststream_outbox._internal.broker.engine import given_engine
from faststream_outbox._internal.broker.logs import EngineLog, make_outbox_logger_state
from faststream_outbox._internal.broker.message import SESSION, Context, OutboxMessage
from faststream_outbox._internal.broker.operating import OperatingMixin
from faststream_outbox._internal.broker.producer import OutboxProducer
from faststream_outbox._internal.broker.publishing import PublishingMixin
from faststream_outbox._internal.broker.registrator import OutboxRegistrator, check_policy
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.broker.topic import check_log_tables
from faststream_outbox._internal.broker.warn import NO_DEAD_LETTERS, users_line, warn
from faststream_outbox._internal.events import recorder
from faststream_outbox._internal.janitor import Retention, checked_retention
from faststream_outbox._internal.options import checked_flag
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.options import TerminalHook
from faststream_outbox._internal.schema.given import check_log, check_tables
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.wakeup.wakeups import NotifyMode
from faststream_outbox.errors import InvalidOption

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


class OutboxBroker(  # pyright: ignore[reportIncompatibleMethodOverride]  # FastStream's brokers narrow these too
    OutboxRegistrator,
    PublishingMixin,
    OperatingMixin,
    BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig],
):
    """A broker whose queues and topics are rows of PostgreSQL tables.

    engine: an AsyncEngine, which stays yours, or an address, whose engine is the broker's own; None for tests only.
    outbox_table: the queues' table, from make_outbox_table.
    dlq_table: the dead letters' table, from make_dlq_table; None deletes what fails for good.
    log_tables: the topics' tables, from make_log_tables; None: no topics.
    notify: how other processes hear of messages: "after_commit", "in_transaction" or "off".
    listen: hear other processes by LISTEN.
    listen_dsn: another address for LISTEN, past a pooler.
    watch: look for messages that nobody announced.
    autocommit: allow publish without a session, in a transaction of its own.
    strict_key_order: lock the key of a topic's message until the commit, so that its publishers follow each other.
    on_terminal_failure: called with the claim before it becomes a dead letter.
    metrics_recorder: called with the name and the tags of each event.
    last_exception_renderer: makes the text that is stored and logged of an error; None takes its repr.
    retention: what workers delete by themselves, and when; None deletes nothing.
    graceful_timeout: seconds that stop waits for handlers; None or 0 cancels them at once.
    decoder, parser, codec: how messages and bodies are read and written, in the place of FastStream's.
    dependencies: FastStream's, called before each handler.
    middlewares: FastStream's, around each message that is handled or published.
    routers: to include at once.
    ack_policy: what a handler's end means, where a subscriber does not say it.
    id_generator: makes correlation ids.
    specification_url, protocol, protocol_version, description, tags, security: the server in AsyncAPI documents.
    logger: for the access log and what the engines report; None: no access log.
    log_level: of the access log.
    apply_types: let FastStream resolve and check the parameters of handlers.
    serializer: turns bodies into parameters and results into bodies.
    provider, context: FastStream's, to share with other brokers.
    underlying_driver_annotations: further annotations to refuse with a hint.
    """

    def __init__(
        self,
        engine: AsyncEngine | str | URL | None = None,
        *,
        outbox_table: Table,
        dlq_table: Table | None = EMPTY,
        log_tables: LogTables | None = None,
        notify: NotifyMode = "after_commit",
        listen: bool = True,
        listen_dsn: str | None = None,
        watch: bool = True,
        autocommit: bool = False,
        strict_key_order: bool = False,
        on_terminal_failure: TerminalHook | None = None,
        metrics_recorder: recorder.MetricsRecorder | None = None,
        last_exception_renderer: Renderer | None = None,
        retention: Retention | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[OutboxRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        security: BaseSecurity | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
    ) -> None:
        check_policy(ack_policy)
        self._unsaid_at = users_line() if dlq_table is EMPTY else None
        self._loop: asyncio.AbstractEventLoop | None = None
        dlq_table = None if dlq_table is EMPTY else dlq_table
        check_tables(outbox_table, dlq_table)
        check_log(log_tables)
        check_policy_of(retention, log_tables)
        used, owns_engine = given_engine(engine)
        logger_state = make_outbox_logger_state(logger, log_level, last_exception_renderer)
        client = log = None
        if used is not None:
            client = OutboxClient(
                used,
                outbox_table,
                dlq_table=dlq_table,
                notify=notify,
                listen=listen,
                listen_dsn=listen_dsn,
                watch=watch,
                last_exception_renderer=last_exception_renderer,
                log=EngineLog(logger_state),
                retention=retention,
            )
            if metrics_recorder is not None:
                recorder.record(client.events, metrics_recorder)
            if log_tables is not None:
                from faststream_outbox._internal.log.client import LogClient

                log = LogClient(
                    used,
                    log_tables,
                    events=client.events,
                    listen=listen,
                    listen_dsn=listen_dsn,
                    last_exception_renderer=last_exception_renderer,
                    retention=retention,
                )
        self._database = None if client is None else DatabaseBackend(client, log)
        config = OutboxBrokerConfig(
            engine=used,
            owns_engine=owns_engine,
            outbox_table=outbox_table,
            dlq_table=dlq_table,
            log_tables=log_tables,
            log_client=log,
            autocommit=autocommit,
            strict_key_order=checked_flag("strict_key_order", strict_key_order),
            own_backend=self._database,
            on_terminal_failure=on_terminal_failure,
            metrics_recorder=metrics_recorder,
            last_exception_renderer=last_exception_renderer,
            broker_middlewares=tuple(middlewares),
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            logger=logger_state,
            fd_config=FastDependsConfig(
                use_fastdepends=apply_types,
                serializer=serializer,
                provider=provider or dependency_provider,
                context=context or ContextRepo(),
            ),
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            id_generator=id_generator,
            extra_context={"broker": self},
            default_driver_annotations=_DRIVER_ANNOTATIONS,
            underlying_driver_annotations=underlying_driver_annotations or {},
        )
        config.producer = OutboxProducer(config, parser, decoder)
        self._renderer, self._recorder = last_exception_renderer, metrics_recorder
        for middleware in middlewares:
            self._introduce(config, middleware)
        super().__init__(
            config=config,
            routers=routers,
            specification=BrokerSpec(
                description=description,
                url=[specification_url or _address(used)],
                protocol=protocol or "postgresql",
                protocol_version=protocol_version,
                tags=tags,
                security=security,
            ),
        )

    def _introduce(self, config: OutboxBrokerConfig, middleware: object) -> None:
        """Tell a middleware what may be said of errors, and the recorder what the middleware counts already."""
        take: Any = getattr(middleware, "render_errors_with", None)
        if take is not None and self._renderer is not None:
            take(self._renderer)
        leave: Any = getattr(self._recorder, "leave_bus_to", None)
        if leave is not None and config.own_backend is not None:
            leave(middleware, config.own_backend.client.events)

    @override
    def add_middleware(self, middleware: BrokerMiddleware[Any, Any]) -> None:
        """Add a middleware as the innermost one."""
        self._introduce(self.config.broker_config, middleware)
        super().add_middleware(middleware)

    @override
    def insert_middleware(self, middleware: BrokerMiddleware[Any, Any]) -> None:
        """Add a middleware as the outermost one."""
        self._introduce(self.config.broker_config, middleware)
        super().insert_middleware(middleware)

    @property
    def engine(self) -> AsyncEngine:
        """The engine that was given, or the one made of an address; for sessions to publish in."""
        return self.client.engine

    @property
    def client(self) -> OutboxClient:
        """The engine's half: events, dead letters, pausing."""
        return self.config.broker_config.client

    @property
    def log(self) -> "LogClient":
        """The log engine's half: ticks, gaps, and what `Outbox` offers to operators."""
        return self.config.broker_config.log

    @override
    def _check_topics(self) -> None:
        check_log_tables(self.config.broker_config.log_tables)

    @override
    async def _connect(self) -> OutboxClient:
        return self.client

    @override
    async def start(self) -> None:
        """Consume with every subscriber, unless already running."""
        await self.connect()
        loop = asyncio.get_running_loop()
        if self.running and self._loop not in (None, loop):
            # The event loop that it ran in has ended without a stop.
            self.running = False
            for subscriber in self.subscribers:
                if isinstance(subscriber, OutboxSubscriber):
                    subscriber.leave()
            for relay in self.relays:
                relay.leave()
        self._loop = loop
        if not self.running:
            self._warn_about_dead_letters()
            await super().start()
            await self._start_relays()
            self._look_after()

    async def _start_relays(self) -> None:
        """Relay, as soon as the other brokers run."""
        config = self.config.broker_config
        if config.backend.reaches_other_brokers:
            for relay in self.relays:
                await relay.start((self.client, lambda: config.log), config.graceful_timeout)

    def _warn_about_dead_letters(self) -> None:
        reads_queues = any(
            getattr(subscriber, "group", None) is None and subscriber.calls for subscriber in self.subscribers
        ) or any(relay.group is None for relay in self.relays)
        if self._unsaid_at is not None and reads_queues:
            # At the line where the answer belongs, and not at the one that starts, which may be FastStream's.
            warn(NO_DEAD_LETTERS, self._unsaid_at)
            self._unsaid_at = None

    @override
    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Let handlers finish, give back what has not started; an engine that was given stays open."""
        config = self.config.broker_config
        try:
            await asyncio.gather(*(relay.stop(config.graceful_timeout) for relay in self.relays))
            await super().stop(exc_type, exc_val, exc_tb)
            if self._database is not None:
                await self._database.close()
        finally:
            await self._look_away()
            self._connection = None
            if config.owns_engine and config.engine is not None:
                await config.engine.dispose()

    async def validate_schema(self, *, check_autovacuum: bool = False, check_rights: bool = False) -> None:
        """Raise `SchemaMismatch` with every difference and its fix, if the tables are not as they should be.

        check_autovacuum: look at the tables' vacuum settings too.
        check_rights: look at what the engine's role may do, as one that handles messages.
        """
        backend = self.config.broker_config.backend
        await backend.validate_schema(check_autovacuum=check_autovacuum, check_rights=check_rights)


def check_policy_of(retention: object, log_tables: LogTables | None) -> None:
    """Refuse a policy for topics where there are none."""
    policy = checked_retention(retention)
    if policy is not None and policy.messages is not None and log_tables is None:
        msg = "Retention(messages=…) is for topics: pass log_tables=make_log_tables(metadata) too."
        raise InvalidOption(msg)


def _address(engine: AsyncEngine | None) -> str:
    """Where the database is, without the name and the password of whoever connects."""
    if engine is None:
        return "postgresql://localhost"
    url = engine.url
    return URL.create("postgresql", host=url.host, port=url.port, database=url.database).render_as_string()


def _shortcut(hint: object, name: str) -> UnderlyingDriverAnnotation:
    return UnderlyingDriverAnnotation(type_hint=hint, module="faststream_outbox.annotations", name=name)


_DRIVER_ANNOTATIONS: UnderlyingDriverAnnotations = {
    OutboxBroker: _shortcut(Annotated[OutboxBroker, Context("broker")], "OutboxBroker"),
    OutboxMessage: _shortcut(Annotated[OutboxMessage, Context("message")], "OutboxMessage"),
    AsyncSession: _shortcut(Annotated[AsyncSession, Context(SESSION)], "OutboxSession"),
}
"""Types that a handler cannot be given by FastStream, and what its parameter is annotated with instead."""


# FastStream finds the test broker of a broker among the classes that were made, for example when somebody tries a
# message out on the page of its AsyncAPI documents. The application has imported nothing for that but the broker.
import_module("faststream_outbox._internal.testing.registration")
