"""Open gaps, and the transactions that may own them.

Asked by the sequencer, when it warns of an old gap, and by operators.
"""

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.overview_log_rows import OpenGap
from faststream_outbox._internal.sql.rows import column, named

LIMIT = 100


async def open_gaps(
    connection: DedicatedConnection, names: LogNames, *, age: float = 0.0, limit: int = LIMIT, beyond: bool = False
) -> list[OpenGap]:
    """Gaps that are open for so many seconds, oldest first, each as often as there are transactions that may own it.

    beyond: also the numbers behind the last that is sequenced, if this role may know how far they were drawn.
    """
    sql = statements("overview_log", names)
    drawn = None
    if beyond and column(await connection.fetch(sql["may_see_drawn"], {})) == [True]:
        (drawn,) = column(await connection.fetch(sql["drawn"], {}))
    values = {"age": age, "limit": limit, "drawn": drawn}
    return named(OpenGap, await connection.fetch(sql["open_gaps"], values))
