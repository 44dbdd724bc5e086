"""The grants of the security page let each role run its statements, and every single one of them is needed."""

import psycopg
import pytest
from sqlalchemy import URL

from faststream_outbox._internal.sql.statements import Statement, statements
from tests.cases import case
from tests.publish.ways import plain
from tests.rights.grants import ROLES, rights
from tests.rights.stage import SCHEMA, Stage
from tests.sql.test_statements_sql import HEADINGS, OF_THE_LOG

PRODUCING = ("publish_one", "publish_alike", "publish_many", "publish_new_timers", "notify")
LOOKING = {
    "control": ("paused", "known_queue", "queues", "ping"),
    "dead": ("frontier", "count_dead", "list_dead", "group_dead", "group_selected"),
    "publish": ("unprocessed", "unprocessed_of_queue"),
    "deferred": ("list_deferred", "list_deferred_of_group"),
    "group_admin": ("list_groups", "is_paused", "paused_among", "paused_groups", "slots_by_owner"),
    "scan": ("survey",),
    "log": ("ticks_after",),
    "overview_log": ("may_see_drawn", "drawn", "open_gaps", "blocked_keys", "oldest_of_groups"),
    "position": (
        "low_water", "known_group", "groups", "guess_tick", "place_of", "position_of_event", "place_of_pair",
        "place_before", "last_place", "lag", "unread",
    ),
    "retention": ("slowest", "lowest_unread", "dead_groups", "first_message"),
    "inbox": ("consumers", "first_and_last", "count_old"),
}  # fmt: skip
APPENDING = ("append", "append_one", "append_whole", "taken", "lock_keys")
READING = {
    "log": ("fetch", "ticks_after"),
    "group_admin": ("is_paused", "paused_among"),
    "deferred": ("blocked", "blocked_or_parked", "fetch_waiting", "fetch_deferred", "drop_missed", "settle_deferred"),
    "position": ("place_before", "last_place"),
}


def whole(*files: str) -> list[tuple[str, str]]:
    return [(file, name) for file in files for name in HEADINGS[f"{file}.sql"]]


def picked(names: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(file, name) for file, of_file in names.items() for name in of_file]


JOBS = {
    "outbox_producer": picked({"publish": PRODUCING}),
    "outbox_scheduler": picked({"publish": (*PRODUCING, "publish_timers", "cancel_timer")}),
    "outbox_worker": [*whole("claim", "keys", "relay", "scan", "settle"), ("control", "last_id")],
    "outbox_publisher": picked({"log": APPENDING}),
    "outbox_consumer": [*whole("group", "tick"), *picked(READING)],
    "outbox_receiver": whole("inbox"),
    "outbox_operator": [
        *whole("control", "dead", "group_admin", "position", "retention", "deferred", "tick"),
        *picked({"publish": ("unprocessed", "unprocessed_of_queue"), "inbox": ("count_old", "lock_cleaning", "clean")}),
    ],
    "outbox_viewer": [*picked(LOOKING), *whole("overview", "doctor", "doctor_queue", "doctor_log")],
}


def job(stage: Stage, role: str) -> list[Statement]:
    names = {**dict.fromkeys(OF_THE_LOG, stage.log_names), "inbox": stage.inbox_names}
    return [statements(file, names.get(file, stage.names))[name] for file, name in JOBS[role]]


def refused(connection: psycopg.Connection, statement: Statement) -> bool:
    """Whether the server refuses the statement for want of a right; with no values, most of them find nothing to do."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement.pyformat, dict.fromkeys(statement.parameters))
    except psycopg.errors.InsufficientPrivilege:
        return True
    except (psycopg.errors.DataError, psycopg.errors.IntegrityError):
        pass
    return False


@pytest.fixture
def connection(database_url: URL):
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("role", ROLES)
def test_role_may_run_its_statements(stage: Stage, role: str, connection: psycopg.Connection) -> None:
    connection.execute(f"SET ROLE {role}")
    assert [statement.name for statement in job(stage, role) if refused(connection, statement)] == []


@pytest.mark.parametrize("role", ROLES)
def test_no_right_of_a_table_is_granted_in_vain(stage: Stage, role: str, connection: psycopg.Connection) -> None:
    connection.execute(f"SET ROLE {role}")
    own = [right for right in rights(role) if not right.on.startswith("SEQUENCE")]
    assert own
    for right in own:
        with case(right.revoke), stage.without(right.revoke):
            assert any(refused(connection, statement) for statement in job(stage, role))


FORBIDDEN = {
    "outbox_producer": [
        "SELECT payload FROM outbox",
        "UPDATE outbox SET priority = 1",
        "DELETE FROM outbox",
        "INSERT INTO outbox (queue, timer_id, payload, acquired_token, acquired_at)"
        " VALUES ('$paused', 'orders', '', gen_random_uuid(), now())",
        "SELECT setval('outbox_id_seq', 1)",
    ],
    "outbox_scheduler": ["UPDATE outbox SET queue = '$paused'", "UPDATE outbox SET acquired_token = NULL"],
    "outbox_worker": ["INSERT INTO outbox (queue, payload) VALUES ('orders', '')", "SELECT payload FROM outbox_dlq"],
    "outbox_publisher": ["SELECT payload FROM outbox_log", "UPDATE outbox_log_offsets SET position = 0"],
    "outbox_consumer": [
        "INSERT INTO outbox_log DEFAULT VALUES",
        "UPDATE outbox_log SET payload = NULL",
        "DELETE FROM outbox_log",
    ],
    "outbox_receiver": ["UPDATE inbox SET message_id = ''", "SELECT 1 FROM outbox"],
    "outbox_operator": [
        "UPDATE outbox SET payload = ''",
        "UPDATE outbox_log SET payload = NULL",
        "INSERT INTO inbox (consumer, source, message_id) VALUES ('a', 'b', 'c')",
    ],
    "outbox_viewer": [
        "SELECT response FROM inbox",
        "DELETE FROM outbox",
        "DELETE FROM outbox_dlq",
        "UPDATE outbox_log_offsets SET position = 0",
    ],
}


@pytest.mark.parametrize("role", ROLES)
def test_role_may_do_nothing_else(stage: Stage, role: str, connection: psycopg.Connection) -> None:
    connection.execute(f"SET search_path = {SCHEMA}")
    connection.execute(f"SET ROLE {role}")
    for forbidden in [*FORBIDDEN[role], f"CREATE TABLE {SCHEMA}.mine ()"]:
        with case(forbidden), pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(forbidden)
