"""What a connection of ours is set to, whatever a role or a database has set: how it plans, and its time limits.

Pure texts; `dedicated` sends them when it has opened a connection, or with each transaction behind a pooler.
"""

BEGIN = "begin isolation level read committed"
# The server ends the transaction of a client that froze or was cut off half-way: others wait for its locks.
IDLE_IN_TRANSACTION = 2.0
_SLACK = 1.0
"""Seconds by which the server gives a statement up later than we do."""
_HAS_TRANSACTION_TIMEOUT = 17

# A plan cached while the queue was empty would be a sequential scan, and outlive the emptiness; a bitmap scan never
# marks dead index entries; compiling takes longer than any statement here, and so does planning: left to itself the
# server plans a claim anew each time. Behind a pooler no plan is cached.
_PLANS = (
    "select set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false), "
    "set_config('jit', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false)"
)


def limits_of(timeout: float, lock_seconds: float, server_version: int) -> dict[str, str]:
    """What a role or a database may have limited, as our statements need it."""
    found = {
        "statement_timeout": str(int((timeout + _SLACK) * 1000)),
        "lock_timeout": str(int(lock_seconds * 1000)),
        "idle_in_transaction_session_timeout": str(int(IDLE_IN_TRANSACTION * 1000)),
    }
    if server_version >= _HAS_TRANSACTION_TIMEOUT:
        found["transaction_timeout"] = "0"
    return found


def settings_of_transaction(application_name: str, given: dict[str, str]) -> str:
    """How a transaction begins where the next one may run on another connection of the server."""
    local = [f"application_name = {_quoted(application_name)}", *(f"{name} = {value}" for name, value in given.items())]
    return "; set local ".join([BEGIN, *local])


def settings_of_session(application_name: str, given: dict[str, str]) -> str:
    """A statement that sets everything for as long as the connection lasts."""
    lasting = {**given, "idle_session_timeout": "0"}
    set_limits = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in lasting.items())
    return f"{_PLANS}, set_config('application_name', {_quoted(application_name)}, false), {set_limits}"


def _quoted(name: str) -> str:
    # As E'…': a backslash in the application's own name means one whatever standard_conforming_strings says.
    return "E'" + name.replace("\\", "\\\\").replace("'", "''") + "'"
