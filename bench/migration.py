"""The migration from 0.3 to 0.19 as its page has it: the tables of 0.19, and its steps, to be run as Alembic runs them.

`python -m bench.rolling` and the tests of the migration run what users copy, and nothing else.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine

from bench.peer import ROOT

PAGE = ROOT / "docs" / "migrating.md"
BEFORE, AFTER, BACK = "upgrade", "upgrade_after_the_deploy", "downgrade_after_the_deploy"
BOTH = ("outbox", "outbox_dlq")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def former_tables() -> str:
    """The SQL that makes the tables of 0.19."""
    return _blocks("sql")[0]


@cache
def steps(tables: tuple[str, ...] = BOTH) -> dict[str, Callable[[], None]]:
    """What is run before the deploy and after it, and what takes the latter back; of these tables."""
    namespace: dict[str, Any] = {}
    for block in _blocks("python"):
        if "def upgrade" in block or "def downgrade" in block:
            exec(compile(block, str(PAGE), "exec"), namespace)
    namespace["TABLES"] = tables
    return {name: namespace[name] for name in (BEFORE, AFTER, BACK)}


def migrate(engine: Engine, step: str, tables: tuple[str, ...] = BOTH) -> None:
    """Run a step of the migration; without dead letters, `tables` is as the page says."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with Operations.context(context), context.begin_transaction(_per_migration=True):
            steps(tables)[step]()
