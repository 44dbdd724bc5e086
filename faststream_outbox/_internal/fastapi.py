"""FastAPI: a router with a broker inside, shortcuts for parameters of handlers, and routes that say how it is.

`OutboxRouter` starts its broker with the application. HTTP routes and handlers of messages live side by side and share
dependencies: a route publishes through `router.broker` in the session of its own `Depends`, a handler gets what it asks
for as a route would. Everything else is the broker's: the options are those of `OutboxBroker` and of its
`subscriber()`. An engine that you give is yours to close.

The shortcuts have the names of `faststream_outbox.annotations`: `async def handle(msg: OutboxMessage, session:
Annotated[AsyncSession, Depends(get_session)])`. They work with `OutboxRouter` and with `faststream_fastapi`, whose own
`Context` (version 1.4) looks for the message where FastStream since 0.7.5 does not put it, and finds nothing. They
resolve in the event loop: a dependency that is not a coroutine would cost a thread for every message. In HTTP routes
there is no message and no context; there, use `router.broker`.

`health_router` has `/live`, `/ready` and `/health`: `app.include_router(health_router(broker))`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from logging import Logger as StandardLogger
from typing import Annotated, Any, NoReturn, cast

from fast_depends.library.serializer import SerializerProto
from fastapi import APIRouter, params
from fastapi.datastructures import Default
from fastapi.routing import APIRoute
from fastapi.types import IncEx
from fastapi.utils import generate_unique_id
from faststream import AckPolicy
from faststream.context import ContextRepo as Repository
from faststream.message import gen_cor_id
from faststream.security import BaseSecurity
from faststream.specification.base import SpecificationFactory
from faststream.specification.schema import Tag, TagDict
from faststream.types import BrokerMiddleware, LoggerProto
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan
from typing_extensions import Unpack, override

from faststream_outbox._internal.broker._faststream import (
    EMPTY,
    CodecProto,
    CustomCallable,
    IdGenerator,
    StreamRouter,
    UnderlyingDriverAnnotations,
    resolve_context_by_name,
)
from faststream_outbox._internal.broker.broker import OutboxBroker as Broker
from faststream_outbox._internal.broker.message import SESSION
from faststream_outbox._internal.broker.message import OutboxBatchMessage as BatchMessage
from faststream_outbox._internal.broker.message import OutboxMessage as Message
from faststream_outbox._internal.broker.options import PublisherOptions, SubscriberOptions
from faststream_outbox._internal.broker.producer import OutboxProducer as Producer
from faststream_outbox._internal.broker.publisher import OutboxPublisher
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.events.recorder import MetricsRecorder
from faststream_outbox._internal.health.health import ANSWERS, TIMEOUT, answer, check_routes
from faststream_outbox._internal.inbox.receipt import MISSING
from faststream_outbox._internal.inbox.receipt import SESSION as INBOX_SESSION
from faststream_outbox._internal.janitor import Retention
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue.client import OutboxClient as Client
from faststream_outbox._internal.queue.options import TerminalHook
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.wakeup.wakeups import NotifyMode
from faststream_outbox.errors import NoTransaction

__all__ = [
    "Context",
    "ContextRepo",
    "InboxSession",
    "Logger",
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxClient",
    "OutboxMessage",
    "OutboxProducer",
    "OutboxSession",
]


def Context(name: str, *, default: Any = EMPTY, initial: Callable[..., Any] | None = None) -> Any:  # noqa: N802 - FastStream's name
    """A value of FastStream's context, by its name, as a dependency of FastAPI's."""

    async def solve(context: Annotated[Any, params.Header(alias="context__", include_in_schema=False)]) -> Any:
        own = _of_message(context)
        return resolve_context_by_name(name=name, default=default, initial=initial, context=own)

    return params.Depends(solve, use_cache=True)


def _of_message(context: Repository) -> Repository:
    """The context that holds the message in flight: that of its broker, where the application's was handed over."""
    for broker in getattr(context.get("app"), "brokers", ()):
        own: Repository = broker.context
        if own.get_local("message") is not None:
            return own
    return context


def _refuse() -> NoReturn:
    msg = (
        "OutboxSession is the session of a handler's own transaction, and this subscriber opens none: "
        "register it with transactional=True, or take a session from Depends(...)."
    )
    raise NoTransaction(msg)


def _refuse_inbox() -> NoReturn:
    raise NoTransaction(MISSING)


InboxSession = Annotated[AsyncSession, Context(INBOX_SESSION, initial=_refuse_inbox)]
"""The `AsyncSession` whose transaction has the receipt of the inbox."""
OutboxMessage = Annotated[Message, Context("message")]
"""The message."""
OutboxBatchMessage = Annotated[BatchMessage, Context("message")]
"""The batch."""
OutboxBroker = Annotated[Broker, Context("broker")]
"""The broker that the message came from."""
OutboxProducer = Annotated[Producer, Context("broker._producer")]
"""What the broker publishes by."""
OutboxClient = Annotated[Client, Context("broker.client")]
"""What the broker's workers share: `pause`, connections, health."""
OutboxSession = Annotated[AsyncSession, Context(SESSION, initial=_refuse)]
"""The `AsyncSession` of a transactional handler: what it writes commits with the message."""
ContextRepo = Annotated[Repository, Context("context")]
"""FastStream's context."""
Logger = Annotated[StandardLogger, Context("logger")]
"""The broker's logger."""


# FastAPI tells these from the same values given by hand.
_JSON = Default(JSONResponse)
_UNIQUE_ID = Default(generate_unique_id)
_NO_MODEL = Default(None)


class OutboxRouter(StreamRouter[Any]):
    """Routes, handlers and the broker that they share.

    Takes the options of `OutboxBroker`, under their names; `specification_tags` are the broker's tags. These are
    FastStream's, of its routers for FastAPI:

    context: to share with other brokers.
    specification: the AsyncAPI document, in the place of FastStream's.
    schema_url: where that document is served; None serves none.
    setup_state: put the broker into the state of the application.

    All others are those of FastAPI's APIRouter.
    """

    broker_class: type[Broker] = Broker  # pyright: ignore[reportIncompatibleVariableOverride]  # it is only called
    broker: Broker  # pyright: ignore[reportIncompatibleVariableOverride]  # made by `broker_class`

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
        metrics_recorder: MetricsRecorder | None = None,
        last_exception_renderer: Renderer | None = None,
        retention: Retention | None = None,
        graceful_timeout: float | None = 15.0,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        security: BaseSecurity | None = None,
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        serializer: SerializerProto | None = EMPTY,
        underlying_driver_annotations: UnderlyingDriverAnnotations | None = None,
        context: Repository | None = None,
        specification: SpecificationFactory | None = None,
        specification_tags: Iterable[Tag | TagDict] = (),
        schema_url: str | None = "/asyncapi",
        setup_state: bool = True,
        prefix: str = "",
        tags: list[str | Enum] | None = None,
        dependencies: Sequence[params.Depends] | None = None,
        default_response_class: type[Response] = _JSON,
        responses: dict[int | str, dict[str, Any]] | None = None,
        callbacks: list[BaseRoute] | None = None,
        routes: list[BaseRoute] | None = None,
        redirect_slashes: bool = True,
        default: ASGIApp | None = None,
        dependency_overrides_provider: Any | None = None,
        route_class: type[APIRoute] = APIRoute,
        on_startup: Sequence[Callable[[], Any]] | None = None,
        on_shutdown: Sequence[Callable[[], Any]] | None = None,
        lifespan: Lifespan[Any] | None = None,
        deprecated: bool | None = None,
        include_in_schema: bool = True,
        generate_unique_id_function: Callable[[APIRoute], str] = _UNIQUE_ID,
    ) -> None:
        super().__init__(
            engine,
            outbox_table=outbox_table,
            dlq_table=dlq_table,
            log_tables=log_tables,
            notify=notify,
            listen=listen,
            listen_dsn=listen_dsn,
            watch=watch,
            autocommit=autocommit,
            strict_key_order=strict_key_order,
            on_terminal_failure=on_terminal_failure,
            metrics_recorder=metrics_recorder,
            last_exception_renderer=last_exception_renderer,
            retention=retention,
            graceful_timeout=graceful_timeout,
            decoder=decoder,
            parser=parser,
            codec=codec,
            middlewares=middlewares,
            ack_policy=ack_policy,
            id_generator=id_generator,
            specification_url=specification_url,
            protocol=protocol,
            protocol_version=protocol_version,
            description=description,
            security=security,
            logger=logger,
            log_level=log_level,
            serializer=serializer,
            underlying_driver_annotations=underlying_driver_annotations,
            context=context,
            specification=specification,
            specification_tags=specification_tags,
            schema_url=schema_url,
            setup_state=setup_state,
            prefix=prefix,
            tags=tags,
            dependencies=dependencies,
            default_response_class=default_response_class,
            responses=responses,
            callbacks=callbacks,
            routes=routes,
            redirect_slashes=redirect_slashes,
            default=default,
            dependency_overrides_provider=dependency_overrides_provider,
            route_class=route_class,
            on_startup=on_startup,
            on_shutdown=on_shutdown,
            lifespan=lifespan,
            deprecated=deprecated,
            include_in_schema=include_in_schema,
            generate_unique_id_function=generate_unique_id_function,
        )

    @override
    def subscriber(  # type: ignore[override]  # names its options, as every broker's router does
        self,
        queues: str | list[str] | tuple[str, ...] = (),
        *,
        dependencies: Iterable[params.Depends] = (),
        response_model: Any = _NO_MODEL,
        response_model_include: IncEx | None = None,
        response_model_exclude: IncEx | None = None,
        response_model_by_alias: bool = True,
        response_model_exclude_unset: bool = False,
        response_model_exclude_defaults: bool = False,
        response_model_exclude_none: bool = False,
        **options: Unpack[SubscriberOptions],
    ) -> OutboxSubscriber:
        """As `OutboxBroker.subscriber`, with dependencies that FastAPI resolves; `response_model*` are FastAPI's."""
        subscriber = super().subscriber(
            queues,  # type: ignore[arg-type]  # passed on to the broker, which takes a list too
            dependencies=dependencies,
            response_model=response_model,
            response_model_include=response_model_include,
            response_model_exclude=response_model_exclude,
            response_model_by_alias=response_model_by_alias,
            response_model_exclude_unset=response_model_exclude_unset,
            response_model_exclude_defaults=response_model_exclude_defaults,
            response_model_exclude_none=response_model_exclude_none,
            **options,
        )
        return cast("OutboxSubscriber", subscriber)

    @override
    def publisher(self, queue: str = "", **options: Unpack[PublisherOptions]) -> OutboxPublisher:
        """As `OutboxBroker.publisher`."""
        return self.broker.publisher(queue, **options)


def health_router(source: Any, *, timeout: float = TIMEOUT, prefix: str = "") -> APIRouter:
    """Routes that say how a broker, an `OutboxClient` or an `Outbox` is; not in the OpenAPI document.

    timeout: seconds that the database may take to answer.
    prefix: stands before each path.
    """
    check_routes(timeout, prefix)
    router = APIRouter(prefix=prefix)
    for path in ANSWERS:
        router.add_api_route(path, _endpoint(source, path, timeout), methods=["GET", "HEAD"], include_in_schema=False)
    return router


def _endpoint(source: Any, path: str, timeout: float) -> Any:
    async def endpoint() -> JSONResponse:
        is_well, found = await answer(source, path, timeout)
        return JSONResponse(found, status_code=200 if is_well else 503, headers={"cache-control": "no-store"})

    return endpoint
