"""SQL stands in `faststream_outbox/_internal/sql/*.sql`; the few places that cannot have it there are known by name."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "faststream_outbox" / "_internal"
ELSEWHERE = {
    "doctor/repairs.py": "commands that repair, to be pasted",
    "log/admin/partitions.py": "the DDL of partitions",
    "schema/autovacuum.py": "DDL for migrations",
    "schema/catalog.py": "what is asked of the catalog",
    "schema/compare.py": "DDL that repairs",
    "schema/repair.py": "DDL that repairs",
    "connections/dedicated.py": "what is asked of a connection that was just opened",
    "connections/opening.py": "settings of a connection",
    "connections/transactions.py": "the level of a transaction",
}
_SQL = re.compile(
    r"(select|insert into|delete from|alter table|create (unique )?(table|index)|drop (table|index)|show)\s"
    r"|update \S+ set|begin isolation|set_config\(",
    re.IGNORECASE,
)


def strings(tree: ast.Module) -> set[str]:
    """The texts of a module that are no docstrings."""
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {node.value for node in constants if node not in said}


def test_sql_stands_in_its_files() -> None:
    sources = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = {
        name
        for name, source in sources.items()
        if any(_SQL.match(text.lstrip()) for text in strings(ast.parse(source)))
    }
    assert found == set(ELSEWHERE)
