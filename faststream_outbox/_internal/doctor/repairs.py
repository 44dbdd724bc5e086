"""Commands that repair, ready to be pasted. Text only: nothing here is run.

SQL is for psql. What is not SQL begins with a line that says so: `# Python` for calls on the application's `broker`,
`# shell` for the machine. Names of others are quoted, so that nothing in them is run by whoever pastes it. Used by the
checks.
"""

from collections.abc import Sequence

from faststream_outbox._internal.schema.names import quoted
from faststream_outbox._internal.text import one_line


def literal(text: str) -> str:
    """A text as SQL; what cannot be seen is escaped."""
    if one_line(text) == text:
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "E'" + "".join(sign if one_line(sign) == sign else f"\\U{ord(sign):08x}" for sign in escaped) + "'"


def python(*lines: str) -> str:
    """Python that is run where the application's broker is."""
    return "\n".join(("# Python, with your broker:", *lines))


def terminate(pids: Sequence[int]) -> str:
    """End sessions."""
    return "\n".join(f"SELECT pg_terminate_backend({pid});" for pid in pids)


def rollback_prepared(gid: str) -> str:
    """Give a prepared transaction up."""
    return f"ROLLBACK PREPARED {literal(gid)};"


def drop_slot(name: str) -> str:
    """Forget a replication slot."""
    return f"SELECT pg_drop_replication_slot({literal(name)});"


def end_queries_of_standby() -> str:
    """End what a standby keeps dead rows for."""
    return (
        "-- on the standby:\n"
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity\n"
        " WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() ORDER BY age(backend_xmin) DESC LIMIT 1;"
    )


def drop_index(index: str) -> str:
    """Take an index away while others write."""
    return f"DROP INDEX CONCURRENTLY IF EXISTS {index};"


def vacuum(table: str) -> str:
    """Remove dead rows now."""
    return f"VACUUM (ANALYZE) {table};"


def freeze(table: str) -> str:
    """Forget old transaction numbers now."""
    return f"VACUUM (FREEZE) {table};"


def set_logged(table: str) -> str:
    """Have a table survive a crash."""
    return f"ALTER TABLE {table} SET LOGGED;"


def reset_option(table: str, option: str) -> str:
    """Take an option of a table back."""
    return f"ALTER TABLE {table} RESET ({option});"


def change_setting(name: str, value: str, source: str, *, role: str, database: str) -> str | None:
    """Change a setting where it was made; None where only whoever starts the server can."""
    match source:
        case "user":
            return f"ALTER ROLE {quoted(role)} RESET {name};"
        case "database":
            return f"ALTER DATABASE {quoted(database)} RESET {name};"
        case "database user":
            return f"ALTER ROLE {quoted(role)} IN DATABASE {quoted(database)} RESET {name};"
        case "configuration file" | "default":
            return f"ALTER SYSTEM SET {name} = {value};\nSELECT pg_reload_conf();"
        case _:
            return None


def raise_connections(most: int) -> str:
    """Allow more connections; counts from the next start on."""
    return f"ALTER SYSTEM SET max_connections = {most};\n-- and restart the server"


def raise_connections_of_database(database: str, most: int) -> str:
    """Allow more connections to a database."""
    return f"ALTER DATABASE {quoted(database)} CONNECTION LIMIT {most};"


def advance_sequence(sequence: str, table: str) -> str:
    """Draw no id that is there already."""
    return (
        f"SELECT setval({literal(sequence)}, greatest((SELECT max(id) FROM {table} WHERE id < 4611686018427387904), "
        f"(SELECT last_value FROM {sequence})));"
    )


def repair_log() -> str:
    """Move a log's sequence on, and find what was numbered meanwhile."""
    return python(
        "from faststream_outbox.log import Outbox",
        "async with Outbox(broker.engine, tables=log_tables) as outbox:  # log_tables: as given to the broker",
        "    await outbox.setup()",
    )


def resume_queue(table: str, queue: str) -> str:
    """End the pause of a queue."""
    return f"DELETE FROM {table} WHERE queue = '$paused' AND timer_id = {literal(queue)};"


def resume_group(offsets: str, group: str, uri: str) -> str:
    """End the pause of a group."""
    return (
        f"UPDATE {offsets} SET paused_at = NULL, updated_at = clock_timestamp()\n"
        f" WHERE consumer_group = {literal(group)} AND uri = {literal(uri)} AND lo = 0;"
    )


def delete_group(group: str, uri: str) -> str:
    """Forget a group."""
    return python(f"await broker.groups.delete({group!r}, {uri!r})")


def retry_parked(group: str, uri: str, positions: Sequence[int]) -> str:
    """Let parked messages run again."""
    return python(f"await broker.parked.retry({group!r}, {uri!r}, positions={[*positions]})")


def replay_letters(ids: Sequence[int]) -> str:
    """Put dead letters back."""
    return _replay(f"ids={[*ids]}")


def replay_queue(queue: str) -> str:
    """Put all dead letters of a queue back."""
    return _replay(f"queue={queue!r}")


def _replay(selected: str) -> str:
    return python(
        "from faststream_outbox.queue import DeadLetters, Selection",
        f"await DeadLetters(broker.client).replay(Selection({selected}))",
    )


def make_partitions(size: int) -> str:
    """Make the parts that numbers are in, and the next ones."""
    return python(
        "from faststream_outbox.log import Outbox",
        "async with Outbox(broker.engine, tables=log_tables) as outbox:  # log_tables: as given to the broker",
        f"    await outbox.partitions({size}).ensure()",
    )


def empty_default(log: str, part: str) -> str:
    """Put what is in a DEFAULT partition where it belongs."""
    return (
        f"BEGIN;\nALTER TABLE {log} DETACH PARTITION {part};\nINSERT INTO {log} SELECT * FROM {part};\n"
        f"DROP TABLE {part};\nCOMMIT;"
    )


def listen_past_pooler() -> str:
    """Give LISTEN an address of the server itself."""
    return (
        "# Python, where the broker is made:\n"
        'broker = OutboxBroker(engine, ..., listen_dsn="postgresql://the-server-itself:5432/database")'
    )


def set_clock() -> str:
    """Set a clock right."""
    return "# shell, on the machine whose clock is wrong:\nchronyc makestep || timedatectl set-ntp true"


def grant_reading(schemas: Sequence[str], tables: Sequence[str], role: str) -> str:
    """Let a role read tables; nothing where there are none."""
    lines = [f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(role)};" for schema in schemas]
    if tables:
        lines.append(f"GRANT SELECT ON {', '.join(tables)} TO {quoted(role)};")
    return "\n".join(lines)


def grant_sequence(sequence: str, role: str) -> str:
    """Let a role read a sequence."""
    return f"GRANT SELECT ON SEQUENCE {sequence} TO {quoted(role)};"


def grant_role(granted: str, role: str) -> str:
    """Make a role a member of another."""
    return f"GRANT {granted} TO {quoted(role)};"
