"""What a check that could not run says: what is missing, and what would allow it. Pure."""

from faststream_outbox._internal.connections.rights import REFUSED, sqlstate_of
from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import duration, first_line
from faststream_outbox._internal.schema.names import schema_map_of, schema_of

_ABSENT = {"42P01", "3F000"}
_UNKNOWN = {"42703", "42883", "42704"}
_TOO_LONG = {"57014", "55P03"}
COST = "Whatever it would have found is not known."


def failed(check: Check, error: Exception, patient: Patient) -> Finding:
    """A check that could not run."""
    said, state = first_line(error), sqlstate_of(error)
    title, detail, repair = f"The check {check.name} could not run", f"The server or the driver said: {said}", None
    if state == REFUSED:
        title = f"The role {patient.server.role} may not run the check {check.name}"
        repair = repairs.grant_reading(_schemas(patient), _read(check, patient), patient.server.role) or None
    elif state in _ABSENT:
        title = f"The check {check.name} misses a table"
        detail += ". The check schema prints what creates it."
    elif state in _UNKNOWN:
        title = f"The check {check.name} misses a column or a function"
        detail += ". The check schema prints missing columns; servers before PostgreSQL 15 are not supported."
    elif state in _TOO_LONG or isinstance(error, TimeoutError):
        title = f"The check {check.name} took too long"
        detail = (
            f"It was given up after {duration(patient.connection.timeout)}. Ask again when less is going on, "
            "or give it more time: Doctor(…, timeout=60)."
        )
    facts: dict[str, JSON] = {"error": said, "sqlstate": state}
    return Finding(check.name, "notice", title, detail, COST, repair, facts)


def unreachable(error: Exception) -> Finding:
    """The server cannot be asked at all."""
    said = first_line(error) or type(error).__name__
    detail = f"Connecting failed: {said}"
    return Finding(
        "server", "critical", "The server cannot be reached", detail, "Nothing can be examined.", None, {"error": said}
    )


def _read(check: Check, patient: Patient) -> list[str]:
    """The tables that a check reads, as SQL."""
    tables = patient.tables
    read = [tables.table] if "queue" in check.needs else []
    read += [tables.dlq_table] if "dead" in check.needs else []
    read += tables.log_tables.all if "log" in check.needs and tables.log_tables is not None else []
    return [patient.name(table) for table in read if table is not None]


def _schemas(patient: Patient) -> list[str]:
    """The schemas of the tables, where they are named."""
    schema_map = schema_map_of(patient.engine)
    return sorted({schema for table in patient.tables.all if (schema := schema_of(table, schema_map)) is not None})
