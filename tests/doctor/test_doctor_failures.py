"""What a check that could not run says: what is missing, and what would allow it."""

from types import SimpleNamespace
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.doctor.doctor import failed, unreachable
from faststream_outbox._internal.doctor.queues import READY
from faststream_outbox._internal.schema.given import Tables
from tests.cases import each


class Said(Exception):
    """What a driver raises."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("it failed\nDETAIL: secret")
        self.sqlstate = sqlstate


PATIENT: Any = SimpleNamespace(
    engine=create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere"),
    connection=SimpleNamespace(timeout=5.0),
    server=SimpleNamespace(role="reader"),
    tables=Tables(),
)


@each(
    ("error", "title"),
    [
        (Said("42501"), "The role reader may not run the check ready"),
        (Said("42P01"), "The check ready misses a table"),
        (Said("3F000"), "The check ready misses a table"),
        (Said("42703"), "The check ready misses a column or a function"),
        (Said("42883"), "The check ready misses a column or a function"),
        (Said("42704"), "The check ready misses a column or a function"),
        (Said("57014"), "The check ready took too long"),
        (Said("55P03"), "The check ready took too long"),
        (TimeoutError(), "The check ready took too long"),
        (Said("XX000"), "The check ready could not run"),
        (ValueError(), "The check ready could not run"),
    ],
)
def test_the_title_says_what_is_missing(error: Exception, title: str) -> None:
    assert failed(READY, error, PATIENT).title == title


def test_the_details_of_an_error_are_left_out() -> None:
    finding = failed(READY, Said("XX000"), PATIENT)
    assert finding.facts == {"error": "it failed", "sqlstate": "XX000"}
    assert "secret" not in finding.detail


def test_an_error_without_words_is_said_by_its_name() -> None:
    assert unreachable(ValueError()).detail == "Connecting failed: ValueError"
