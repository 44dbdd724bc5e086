"""Autovacuum settings for an outbox table, as SQL to put into a migration, and their removal.

A queue's table is nearly empty and churns, so the share of dead rows says nothing and a plain count
must decide when to vacuum. Called by applications; `validate_schema(check_autovacuum=True)` checks
the result and prints the same statement.
"""

from faststream_outbox._internal.schema.names import MAX_IDENTIFIER_BYTES, check_plain_name, quoted
from faststream_outbox.errors import InvalidOption

MAX_THRESHOLD = 2_147_483_647
MAX_COST_DELAY = 100
MAX_COST_LIMIT = 10_000

_SETTINGS = (
    "autovacuum_vacuum_scale_factor",
    "autovacuum_vacuum_threshold",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_cost_delay",
    "autovacuum_vacuum_cost_limit",
)


def outbox_autovacuum_ddl(
    table_name: str = "outbox",
    *,
    schema: str | None = None,
    vacuum_threshold: int = 1000,
    insert_threshold: int = 1000,
    vacuum_cost_delay: float | None = None,
    vacuum_cost_limit: int | None = None,
) -> str:
    """Return the ALTER TABLE that vacuums after so many dead or inserted rows, whatever the table's size.

    The delay is in milliseconds; it and the limit are left to the server unless given.
    """
    _check_whole("vacuum_threshold", vacuum_threshold, 0, MAX_THRESHOLD)
    _check_whole("insert_threshold", insert_threshold, 0, MAX_THRESHOLD)
    settings = [
        "autovacuum_vacuum_scale_factor = 0",
        f"autovacuum_vacuum_threshold = {vacuum_threshold}",
        "autovacuum_vacuum_insert_scale_factor = 0",
        f"autovacuum_vacuum_insert_threshold = {insert_threshold}",
    ]
    if vacuum_cost_delay is not None:
        _check_delay(vacuum_cost_delay)
        settings.append(f"autovacuum_vacuum_cost_delay = {vacuum_cost_delay}")
    if vacuum_cost_limit is not None:
        _check_whole("vacuum_cost_limit", vacuum_cost_limit, 1, MAX_COST_LIMIT)
        settings.append(f"autovacuum_vacuum_cost_limit = {vacuum_cost_limit}")
    return f"ALTER TABLE {_table(table_name, schema)} SET ({', '.join(settings)})"


def outbox_autovacuum_rollback_ddl(table_name: str = "outbox", *, schema: str | None = None) -> str:
    """Return the ALTER TABLE that takes back everything that `outbox_autovacuum_ddl` can set."""
    return f"ALTER TABLE {_table(table_name, schema)} RESET ({', '.join(_SETTINGS)})"


def _table(table_name: str, schema: str | None) -> str:
    for option, name in (("table_name", table_name), ("schema", schema)):
        if name is None and option == "schema":
            continue
        if not isinstance(name, str):
            msg = f"{option} must be a string, not {name!r}; pass the name itself, such as table.name."
            raise InvalidOption(msg)
        check_plain_name(option, name)
        if len(name.encode()) > MAX_IDENTIFIER_BYTES:
            msg = f"{option} {name!r} is not a name: give 1 to {MAX_IDENTIFIER_BYTES} bytes without NUL."
            raise InvalidOption(msg)
    return quoted(table_name, schema)


def _check_whole(option: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        msg = f"{option} must be a whole number from {least} to {most}, not {value!r}."
        raise InvalidOption(msg)


def _check_delay(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_COST_DELAY:
        msg = f"vacuum_cost_delay must be a number of milliseconds from 0 to {MAX_COST_DELAY}, not {value!r}."
        raise InvalidOption(msg)
