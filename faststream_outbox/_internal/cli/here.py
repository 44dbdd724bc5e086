"""What a command works with: an operator whose missing tables are refusals that say how to name them, and a printer.

Made by `command` for one command, closed after it.
"""

from collections.abc import Mapping
from functools import cached_property

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.place import Place, Where
from faststream_outbox._internal.cli.printing import Printer
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.operator import Kind, Operator
from faststream_outbox._internal.overview.overview import TIMEOUT, Overview

_OPTIONS: Mapping[Kind, str] = {
    "queues": "--table",
    "dead letters": "--dlq-table",
    "topics": "--log",
    "receipts": "--inbox",
}


class Here(Operator):
    """One database, while one command runs."""

    def __init__(self, place: Place, printer: Printer, source: Place, where: Where) -> None:
        timeout = TIMEOUT if where.timeout is None else where.timeout.total_seconds()
        # Without the application's broker: it is not started, and may have other tables than those that were named.
        super().__init__(place.engine, place.tables, timeout=timeout, missing=_missing)
        self.printer = printer
        self.source = source
        """What the application has described, if one was named."""
        self.where = where
        """What was said on the command line."""

    @cached_property
    def overview(self) -> Overview:
        """The questions that change nothing."""
        if self.tables.table is None and self.tables.log_tables is None:
            msg = (
                "Neither a table of queues nor a log is here under its usual name. Name them with --table and --log, "
                "and their schema with --schema; `schema print` has the SQL that makes them."
            )
            raise Refusal(msg)
        return super().overview

    def connection(self) -> DedicatedConnection:
        """A connection that is closed with the rest."""
        made = DedicatedConnection(self.engine)
        self._closing.append(made.close)
        return made


def _missing(kind: Kind) -> Refusal:
    return Refusal(
        f"No table for {kind} is here under its usual name: name it with {_OPTIONS[kind]}, and its schema with "
        "--schema. `schema print` has the SQL that makes it."
    )
