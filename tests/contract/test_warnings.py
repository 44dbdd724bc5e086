"""Combinations that cannot work are refused, and those seldom meant are warned about, at the user's line."""

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import faststream
import pytest
from faststream import AckPolicy

import faststream_outbox
from faststream_outbox import ConstantRetry, NoRetry, OutboxBroker
from tests.cases import each
from tests.contract.running import SNIPPET, line_of, run

REGISTRATION = """\
subscriber = broker.subscriber(
    "orders",
    **options,
)


@subscriber
async def handle(order_id: int) -> None: ...
"""

SELDOM_MEANT: dict[str, tuple[dict[str, Any], str]] = {
    "lease shorter than polling": ({"lease_ttl_seconds": 5.0}, "lease_ttl_seconds=5"),
    "lease equal to polling": ({"lease_ttl_seconds": 10.0}, "max_fetch_interval=10"),
    "max_deliveries without retry": ({"max_deliveries": 3, "retry_strategy": NoRetry()}, "max_deliveries"),
    "strategy that is never asked": (
        {"ack_policy": AckPolicy.REJECT_ON_ERROR, "retry_strategy": ConstantRetry(delay_seconds=1.0)},
        "REJECT_ON_ERROR",
    ),
    "explicit nack without retry": (
        {"ack_policy": AckPolicy.NACK_ON_ERROR, "retry_strategy": NoRetry()},
        "NACK_ON_ERROR",
    ),
}

SENSIBLE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "lease above polling": {"lease_ttl_seconds": 11.0},
    "max_deliveries with retry": {"max_deliveries": 3},
    "no retry": {"retry_strategy": NoRetry()},
    "reject on error": {"ack_policy": AckPolicy.REJECT_ON_ERROR},
}


@pytest.mark.parametrize("name", SELDOM_MEANT)
async def test_a_combination_that_is_seldom_meant_is_warned_about_at_the_users_line(
    unconnected: OutboxBroker, name: str
) -> None:
    options, words = SELDOM_MEANT[name]
    with pytest.warns(UserWarning, match=words) as caught:
        await run(REGISTRATION, {"broker": unconnected, "options": options})
    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (SNIPPET, line_of(REGISTRATION, "broker.subscriber"))
    ]


@pytest.mark.parametrize("package", [faststream, faststream_outbox], ids=lambda package: package.__name__)
async def test_a_user_whose_directory_is_named_like_a_package_is_warned_at_their_own_line(
    unconnected: OutboxBroker, package: ModuleType
) -> None:
    file = f"{Path(str(package.__file__)).parent}_shop/app.py"
    with pytest.warns(UserWarning, match="lease_ttl_seconds") as caught:
        await run(REGISTRATION, {"broker": unconnected, "options": {"lease_ttl_seconds": 5.0}}, file=file)
    assert [warning.filename for warning in caught] == [file]


@pytest.mark.parametrize("name", SENSIBLE)
async def test_a_sensible_combination_is_not_warned_about(unconnected: OutboxBroker, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(REGISTRATION, {"broker": unconnected, "options": SENSIBLE[name]})


def test_a_minimum_above_the_maximum_is_refused(unconnected: OutboxBroker) -> None:
    with pytest.raises(ValueError, match="min_fetch_interval"):
        unconnected.subscriber("orders", min_fetch_interval=11.0)


@each(
    ("option", "value"),
    [
        ("max_workers", 0),
        ("fetch_batch_size", 0),
        ("min_fetch_interval", 0),
        ("max_fetch_interval", -1),
        ("lease_ttl_seconds", 0),
        ("max_deliveries", 0),
    ],
)
def test_an_impossible_value_is_refused_and_named(unconnected: OutboxBroker, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        unconnected.subscriber("orders", **{option: value})
