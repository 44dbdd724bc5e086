"""Dead letters, to look at: what failed alike, and the letters of a selection. Replaying is `queue.DeadLetters`."""

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import read_headers
from faststream_outbox._internal.options import MOST_ROWS, check_count, check_number
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, ErrorGroup, Selection, check_selection
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.queue_rows import DeadGroupRow, DeadLetterRow
from faststream_outbox._internal.sql.rows import named

MOST_GROUPED = 100_000
"""Dead letters that are grouped: the newest."""


async def fetch_groups(connection: DedicatedConnection, names: Names) -> list[ErrorGroup]:
    """The newest dead letters that failed alike."""
    rows = await connection.fetch(statements("overview", names)["group_newest_dead"], {"most": MOST_GROUPED})
    return [ErrorGroup(*row) for row in named(DeadGroupRow, rows)]


async def fetch_letters(
    connection: DedicatedConnection, names: Names, selection: Selection, limit: int, after: int
) -> list[DeadLetter]:
    """Dead letters by id."""
    check_selection(selection)
    check_count("limit", limit, most=MOST_ROWS)
    check_number("after", after)
    values = selection.values() | {"limit": limit, "after": after}
    rows = await connection.fetch(statements("overview", names)["dead_after"], values)
    return [as_letter(row) for row in named(DeadLetterRow, rows)]


def as_letter(row: DeadLetterRow) -> DeadLetter:
    """The dead letter of a row."""
    return DeadLetter(**{**row._asdict(), "headers": read_headers(row.headers)})
