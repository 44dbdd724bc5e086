"""A stranger's schema, full of traps: tables named like ours, and functions and operators named like built-in ones.

Each trap raises an error when it is used. A schema of this kind is on the search path of the roles: where a stranger
may create things there, as everybody could in `public` before PostgreSQL 15.
"""

from tests.rights.stage import Stage

SCHEMA = "stranger"
TRAPPED = "trapped by a stranger"

_RAISE = f"language plpgsql as $$ begin raise exception using message = '{TRAPPED}: {{name}}'; end $$"

# The very types of the built-in ones: these win only where the path names pg_catalog behind the stranger.
SAME = {
    "now()": "timestamptz",
    "clock_timestamp()": "timestamptz",
    "gen_random_uuid()": "uuid",
    "pg_notify(text, text)": "void",
    "to_regclass(text)": "regclass",
    "cardinality(anyarray)": "int",
    "pg_try_advisory_xact_lock(bigint)": "boolean",
    "pg_current_xact_id()": "xid8",
    "nextval(regclass)": "bigint",
}

# Better matches than the built-in ones for arguments of these types: these win wherever the path names the stranger.
BETTER = {
    "unnest(text[])": "text",
    "jsonb_build_object(text, text)": "jsonb",
    "starts_with(varchar, text)": "boolean",
    "octet_length(varchar)": "int",
}
EQUALS = [("varchar", "text"), ("text", "varchar"), ("varchar", "varchar")]


def lay_traps(stage: Stage) -> None:
    """Make the schema with its tables and functions; everybody may use them."""
    stage.execute(f"drop schema if exists {SCHEMA} cascade", f"create schema {SCHEMA}")
    stage.execute(*(f"create table {SCHEMA}.{table.name} ()" for table in stage.metadata.sorted_tables))
    stage.execute(*(_function(signature, result) for signature, result in SAME.items()))
    stage.execute(f"grant usage on schema {SCHEMA} to public", f"grant all on all tables in schema {SCHEMA} to public")


def lay_better_matches(stage: Stage) -> None:
    """Make functions and operators for the very types of our columns and parameters."""
    stage.execute(*(_function(signature, result) for signature, result in BETTER.items()))
    for types in EQUALS:
        left, right = types
        stage.execute(
            _function(f"equals({left}, {right})", "boolean"),
            f"create operator {SCHEMA}.= (leftarg = {left}, rightarg = {right}, function = {SCHEMA}.equals)",
        )


def _function(signature: str, result: str) -> str:
    return f"create function {SCHEMA}.{signature} returns {result} " + _RAISE.format(name=signature)


def remove_traps(stage: Stage) -> None:
    """Drop the schema with all that it has."""
    stage.execute(f"drop schema if exists {SCHEMA} cascade")
