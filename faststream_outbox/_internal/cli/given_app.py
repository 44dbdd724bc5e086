"""What `--app module:name` means: a broker, a FastStream app, a router of FastAPI, an `Outbox` or an `Inbox`.

Only imported, never started: its engine and its tables are used, and its relays are listed. A module that cannot be
imported, or has another name for it, is a refusal that says what to write. Used by `place`.
"""

import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.schema.log_tables import LogTables

_KINDS = "an OutboxBroker, a FastStream app with one, an OutboxClient, an Outbox or an Inbox"


@dataclass(frozen=True, slots=True)
class Given:
    """What an application has described."""

    engine: AsyncEngine
    table: Table | None = None
    dlq_table: Table | None = None
    log_tables: LogTables | None = None
    inbox_table: Table | None = None
    broker: Any = None
    """The OutboxBroker, which has relays and subscribers."""


def given_by(reference: str) -> Given:
    """What a reference like `shop.app:broker` has."""
    found = _loaded(reference)
    given = _given(found)
    if given is None:
        msg = f"{reference} is a {type(found).__name__}, and --app takes {_KINDS}."
        raise Refusal(msg)
    return given


def _loaded(reference: str) -> object:
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        msg = f"--app is written module:name, as in shop.app:broker, not {reference!r}."
        raise Refusal(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        # As `faststream run` does: a script's own path is that of the environment's programs.
        sys.path.insert(0, here)
    try:
        # What a module prints while it is imported is no part of our answer.
        with redirect_stdout(sys.stderr):
            found: object = import_module(module_name)
    except Exception as error:
        # Whatever a stranger's module raises while it is imported.
        msg = f"--app: importing {module_name!r} failed: {type(error).__name__}: {error}{_place(error)}"
        raise Refusal(msg) from error
    for name in path.split("."):
        if not hasattr(found, name):
            known = [
                each
                for each, value in getattr(found, "__dict__", {}).items()
                if _broker_of(value) or _engine_user(value)
            ]
            msg = f"--app: {module_name!r} has no {name!r}; {nearest(name, known, 'broker, app or outbox')}"
            raise Refusal(msg)
        found = getattr(found, name)
    return found


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""


def _given(found: object) -> Given | None:
    broker = _broker_of(found)
    if broker is None:
        return _engine_user(found)
    config = broker.config.broker_config
    if config.engine is None:
        msg = "--app: this broker was made without an engine, as for tests, so there is no database to look at."
        raise Refusal(msg)
    return Given(config.engine, config.outbox_table, config.dlq_table, config.log_tables, broker=broker)


def _engine_user(found: object) -> Given | None:
    """What works on a database without a broker."""
    if isinstance(found, Outbox):
        return Given(found.engine, log_tables=found.tables)
    if isinstance(found, OutboxClient):
        return Given(found.engine, found.table, found.dlq_table)
    from faststream_outbox._internal.inbox.receiver import Receiver

    return Given(found.engine, inbox_table=found.table) if isinstance(found, Receiver) else None


def _broker_of(found: object) -> Any:
    """The broker that an object is or has."""
    # Imported here, because FastStream takes longer to import than most commands take to run.
    from faststream_outbox._internal.broker.broker import OutboxBroker

    if isinstance(found, type):
        return None
    several: object = getattr(found, "brokers", None)
    candidates = [found, getattr(found, "broker", None), *(several if isinstance(several, list | tuple) else ())]
    return next((each for each in candidates if isinstance(each, OutboxBroker)), None)
