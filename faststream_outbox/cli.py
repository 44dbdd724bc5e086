"""`faststream-outbox`: queues, topics, dead letters and everything that is wrong, for operators at a terminal.

Reads and changes a database by its address, or by what an application has described. Needs the extra `cli`; `main` is
the script's entry point and says so where it is missing.
"""

import sys
from importlib.util import find_spec
from io import TextIOWrapper


def main() -> None:
    """Run the command that was asked for, and end with its exit code."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        print(f"faststream-outbox needs {' and '.join(missing)}: pip install '.[cli]' brings them.", file=sys.stderr)
        raise SystemExit(2)
    from faststream_outbox._internal.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Whatever a terminal cannot show is escaped, instead of ending the program half-way.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="faststream-outbox")
