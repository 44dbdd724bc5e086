"""Every private name of FastStream that the broker stands on, and nothing else.

FastStream has no public interface for brokers outside its tree yet. This is the only module that
imports from `faststream._internal`; when a release moves something, it moves here.
"""

from typing import TYPE_CHECKING, Any

from faststream._internal._compat import json_loads
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
    UnderlyingDriverAnnotations,
)
from faststream._internal.constants import EMPTY
from faststream._internal.context.resolve import resolve_context_by_name
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.logger import DefaultLoggerStorage, LoggerState, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream._internal.types import AsyncCallable, CustomCallable, IdGenerator

if TYPE_CHECKING:
    from faststream._internal.fastapi import StreamRouter
else:

    def __getattr__(name: str) -> Any:
        # Late, because it needs FastAPI, which need not be installed.
        if name == "StreamRouter":
            from faststream._internal.fastapi import StreamRouter

            return StreamRouter
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


__all__ = [
    "EMPTY",
    "ArgsContainer",
    "AsyncCallable",
    "BatchCodecProto",
    "BrokerConfig",
    "BrokerRouter",
    "BrokerUsecase",
    "CallsCollection",
    "CodecProto",
    "CustomCallable",
    "DefaultCodec",
    "DefaultLoggerStorage",
    "EnterType",
    "FakePublisher",
    "FastDependsConfig",
    "IdGenerator",
    "LoggerState",
    "ParserComposition",
    "ProducerProto",
    "PublisherSpecification",
    "PublisherSpecificationConfig",
    "PublisherUsecase",
    "PublisherUsecaseConfig",
    "Registrator",
    "StreamRouter",
    "SubscriberRoute",
    "SubscriberSpecification",
    "SubscriberSpecificationConfig",
    "SubscriberUsecase",
    "SubscriberUsecaseConfig",
    "TestBroker",
    "UnderlyingDriverAnnotations",
    "change_producer",
    "get_broker_logger",
    "json_loads",
    "make_logger_state",
    "resolve_context_by_name",
]
