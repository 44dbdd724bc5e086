"""The private shapes of FastStream that the broker leans on; the first test to fail when a release moves one."""

import dataclasses
import inspect
from typing import Any

from faststream._internal.testing import broker as testing
from faststream.message import StreamMessage
from faststream.middlewares import BaseMiddleware
from faststream.response import BatchPublishCommand
from faststream.specification.schema import BrokerSpec, PublisherSpec, SubscriberSpec
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_outbox_table
from faststream_outbox._internal.broker import _faststream as private
from faststream_outbox._internal.broker.message import OutboxBatchParser
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from tests.cases import each


def _names(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def test_everything_taken_from_private_modules_is_there() -> None:
    assert [name for name in private.__all__ if not hasattr(private, name)] == []


@each(
    ("cls", "abstract"),
    [
        (private.BrokerUsecase, {"_connect", "ping", "publish", "publisher", "request", "subscriber"}),
        (private.SubscriberUsecase, {"__aiter__", "_make_response_publisher", "get_one", "stop"}),
        (private.PublisherUsecase, {"_publish", "publish", "request"}),
        (private.SubscriberSpecification, {"channel_labels", "get_schema"}),
        (private.TestBroker, {"_fake_connect", "create_publisher_fake_subscriber"}),
    ],
)
def test_what_must_be_implemented_has_not_changed(cls: Any, abstract: set[str]) -> None:
    assert {name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)} == abstract


@each(
    ("function", "names"),
    [
        (private.SubscriberUsecase.add_call, {"parser_", "decoder_", "codec_", "dependencies_"}),
        (private.SubscriberUsecase.__init__, {"config", "specification", "calls"}),
        (private.PublisherUsecase.__init__, {"config", "specification"}),
        (private.PublisherUsecase._publish, {"cmd", "_extra_middlewares"}),
        (private.PublisherUsecase._basic_publish, {"cmd", "producer", "_extra_middlewares"}),
        (private.BrokerUsecase._basic_publish, {"cmd", "producer"}),
        (private.BrokerUsecase._basic_publish_batch, {"cmd", "producer"}),
        (private.BrokerUsecase._basic_request, {"cmd", "producer"}),
        (private.TestBroker.__init__, {"brokers", "with_real", "connect_only"}),
        (private.TestBroker.__init_subclass__, {"broker", "kwargs"}),
        (private.TestBroker._do_start, {"broker"}),
        (private.TestBroker._patch_producer, {"broker"}),
        (private.SubscriberUsecase.consume, {"msg"}),
        (private.SubscriberUsecase.process_message, {"msg"}),
    ],
)
def test_signature_has_not_changed(function: Any, names: set[str]) -> None:
    assert _names(function) == names


@each(
    ("cls", "names"),
    [
        (
            private.BrokerConfig,
            {
                "prefix", "include_in_schema", "broker_middlewares", "broker_parser", "broker_decoder", "broker_codec",
                "producer", "logger", "fd_config", "id_generator", "underlying_driver_annotations",
                "default_driver_annotations", "broker_dependencies", "graceful_timeout", "ack_policy", "extra_context",
            },
        ),
        (private.SubscriberUsecaseConfig, {"_outer_config", "_ack_policy", "no_reply", "parser", "decoder"}),
        (private.PublisherUsecaseConfig, {"_outer_config"}),
        (private.SubscriberSpecificationConfig, {"title_", "description_", "include_in_schema"}),
        (private.PublisherSpecificationConfig, {"title_", "description_", "include_in_schema", "schema_"}),
        (SubscriberSpec, {"address", "description", "operation", "bindings"}),
        (PublisherSpec, {"address", "description", "operation", "bindings"}),
        (BrokerSpec, {"url", "protocol", "protocol_version", "description", "tags", "security"}),
    ],
)  # fmt: skip
def test_fields_have_not_changed(cls: Any, names: set[str]) -> None:
    assert {field.name for field in dataclasses.fields(cls)} == names


def test_batch_decoder_has_the_name_that_faststream_knows_it_by() -> None:
    source = inspect.getsource(private.SubscriberUsecase._get_parser_and_decoder)
    assert f'"{OutboxBatchParser.decode_batch.__name__}"' in source


def test_test_broker_is_found_for_the_broker() -> None:
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()))
    assert testing.find_test_broker(broker) is TestOutboxBroker


def test_pipeline_is_faststreams_own() -> None:
    ours = vars(OutboxSubscriber)
    assert [name for name in ("consume", "process_message", "_build_fastdepends_model") if name in ours] == []


def test_middlewares_and_messages_are_awaited_by_the_same_names() -> None:
    hooks = {name for name, value in vars(BaseMiddleware).items() if inspect.iscoroutinefunction(value)}
    assert {"on_receive", "after_processed", "consume_scope", "publish_scope"} <= hooks
    assert all(inspect.iscoroutinefunction(getattr(StreamMessage, name)) for name in ("ack", "nack", "reject"))


def test_batch_command_splits_bodies() -> None:
    assert BatchPublishCommand._parse_bodies([1, 2, 3], batch=True) == (1, (2, 3))


def test_middlewares_of_a_subscriber_are_asked_for_by_the_name_that_ours_are_added_under() -> None:
    assert isinstance(private.SubscriberUsecase._broker_middlewares, property)
    assert "self._broker_middlewares" in inspect.getsource(private.SubscriberUsecase)
