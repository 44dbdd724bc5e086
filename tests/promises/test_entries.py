"""Whatever an argument is, a public call ends with a result or with an error that says which argument is wrong.

Never with an error of a driver or of Python that came from the depths, and never with a row that is half written.
"""

import importlib
import pkgutil
import traceback
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

import faststream_outbox as package
from faststream_outbox import events, make_inbox_table
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from faststream_outbox.errors import OutboxError
from tests.cases import case
from tests.promises.entries import entries
from tests.promises.entry import Entry, Place, called
from tests.tables import all_existing

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


MODULES = [each for each in pkgutil.iter_modules(package.__path__) if each.name != "__main__"]


class Unhashable:
    """Is no key of a dict."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "unhashable"


NUMBERS = [True, -1, 0, 2**31, 2**63, 2**200, 0.5, -1.0, float("nan"), float("inf"), 1e300, Decimal("1.5"), 1j]
TEXTS = ["", "a\x00b", "\ud800", "x" * 300, " ", "\n", "'\"%s:x{y}\\", "2020", "infinity", b"bytes", bytearray(b"x")]
THINGS = [None, [], ["a"], [1], {}, {"a": 1}, {1: 2}, (), {1}, object(), Unhashable(), Unhashable, print]
TIMES = [datetime(2020, 1, 1), datetime.max.replace(tzinfo=UTC), timedelta(-1), timedelta.max, UUID(int=1)]  # noqa: DTZ001
ODD: list[Any] = [*NUMBERS, *TEXTS, *THINGS, *TIMES]

ANYTHING = st.recursive(
    st.sampled_from(ODD) | st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    | st.datetimes() | st.timedeltas() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip

OTHERS_CODE: set[tuple[str, str]] = {
    # A class is called as a function that says how fast, and says itself that it takes no arguments.
    ("DeadLetters.replay", "rate"),
    # Its error is that time is up.
    ("Outbox.wait_until_caught_up", "timeout"),
}
UNHASHABLE = {"slot_of"}
"""Remembers what it was asked: Python says for it what cannot be remembered."""


def is_clear(error: Exception, entry: Entry, argument: str) -> bool:
    """Whether a reader of the error knows what to change."""
    if isinstance(error, OutboxError):
        return True
    if isinstance(error, TypeError | ValueError) and argument in str(error):
        return True
    return (entry.name, argument) in OTHERS_CODE or (entry.name in UNHASHABLE and "unhashable" in str(error))


async def complaints(entry: Entry, argument: str, value: Any) -> Iterator[str]:
    """What is wrong with the end of a call."""
    try:
        await called(entry, **{argument: value})
    except Exception as error:
        if not is_clear(error, entry, argument):
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            kind = type(value).__name__
            return iter([f"{entry.name}({argument}={kind}): {type(error).__name__} at {where}: {str(error)[:100]}"])
    return iter(())


@pytest.fixture
def log_tables(metadata: MetaData, builder: Engine) -> Iterator[LogTables]:
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        yield tables


@pytest.fixture
def inbox_table(metadata: MetaData, builder: Engine) -> Iterator[Table]:
    table = make_inbox_table(metadata)
    with all_existing([table], builder):
        yield table


@pytest.fixture
async def place(
    engine: AsyncEngine,
    sync_engine: Engine,
    table: Table,
    dlq_table: Table,
    inbox_table: Table,
    log_tables: LogTables,
) -> AsyncIterator[Place]:
    place = Place(engine, sync_engine, (table, dlq_table, inbox_table), log_tables)
    yield place
    await place.close()


async def rows(place: Place) -> int:
    """Messages that are in the tables."""
    async with place.engine.connect() as connection:
        queues = await connection.scalar(text("select count(*) from outbox where queue <> '$paused'"))
        topics = await connection.scalar(text("select count(*) from outbox_log"))
        return int(queues + topics)


async def test_every_entry_takes_what_is_right(place: Place) -> None:
    for entry in entries(place):
        if "session" not in entry.good:
            with case(entry.name):
                await called(entry)
    assert await rows(place) == 0


async def test_an_argument_of_any_kind_is_taken_or_named(place: Place) -> None:
    found = [
        complaint
        for entry in entries(place)
        for argument in entry.good
        for value in ODD
        for complaint in await complaints(entry, argument, value)
    ]
    assert not found, "\n".join(found)
    assert await rows(place) == 0


@pytest.mark.soak
@settings(max_examples=3000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_an_argument_of_any_kind_is_taken_or_named_at_length(data: st.DataObject, place: Place) -> None:
    entry = data.draw(st.sampled_from([entry for entry in entries(place) if entry.good]))
    argument = data.draw(st.sampled_from(sorted(entry.good)))
    assert [*await complaints(entry, argument, data.draw(ANYTHING))] == []


ELSEWHERE: dict[str, str] = {
    "": (
        "Envelope MetricsRecorder NoRetry OutboxBatchMessage OutboxMessage OutboxPublisher Receipt RetryStrategyProto "
        "SyncReceipt TimerConflict"
    ),
    "dashboard": "Action Audit Content Dashboard User address_of serve",
    "doctor": "Finding JSON SEVERITIES Severity worst",
    "fastapi": "Context ContextRepo InboxSession Logger OutboxBatchMessage OutboxMessage OutboxProducer OutboxSession",
    "health": "Checks Health",
    "inbox": "Answer Receipt SESSION SyncReceipt",
    "log": (
        "Cleaned Cursor DeferredMessage Delivery Dispatched DuplicateMessage GroupStatus Groups Lag LogClient "
        "LogTables OutboxMessage Parking SequenceBehind SlotLag Subscriber Token TopicMessage"
    ),
    "metrics": "MetricsRecorder",
    "overview": (
        "BlockedKey GapOwner GapStatus MessageStatus Process QueueStatus Rates SlotStatus TimerStatus Unprocessed "
        "as_unprocessed"
    ),
    "publish": "AnySession AnySyncSession",
    "queue": (
        "Claim DONE DeadLetter Done ErrorGroup NoRetry NotifyMode Outcome RELEASE Release Replay RetryStrategyProto "
        "SETTLED Settled Undecided pause paused resume"
    ),
    "relay": "Refused Relay RelayStatus Result Sent SqsTransport Transport Unavailable address_of",
    "schema": "Difference Names checked_identifier find_differences validate_schema",
    "testing": "PostgresServer",
    "events": " ".join({*events.__all__} - {"Events"}),
}
"""Public names that are no way in, such as types of answers, or that tests of their own modules try."""


OTHERS = {
    "annotations": "types of parameters",
    "broker": "the same names as those of the package",
    "opentelemetry": "a middleware of FastStream's, with its options",
    "prometheus": "a middleware of FastStream's, with its options",
}
"""Modules with a list of names that have no way in of their own."""


def test_every_public_module_is_here() -> None:
    modules = {each.name: importlib.import_module(f"faststream_outbox.{each.name}") for each in MODULES}
    assert {name for name, module in modules.items() if hasattr(module, "__all__")} == {*ELSEWHERE, *OTHERS} - {""}


async def test_every_public_name_is_tried_here_or_elsewhere(place: Place) -> None:
    tried = {entry.name.partition(".")[0] for entry in entries(place)}
    for module, names in ELSEWHERE.items():
        public = {*importlib.import_module(f"faststream_outbox.{module}".rstrip(".")).__all__}
        assert public - tried == {*names.split()}, module
