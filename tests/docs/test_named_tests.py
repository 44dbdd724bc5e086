"""Pages that name tests name such as exist, and every promise and every fault that was found has one."""

import ast
import re
from pathlib import Path

from tests.cases import each
from tests.docs.pages import ROOT, text_of
from tests.faults.machine.page import reports, rewritten

PROMISES, RELIABILITY = "docs/promises.md", "docs/reliability.md"
SNIPPETS = ROOT / "tests" / "contract"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
_PROMISE = re.compile(r"^\| (?!promise |---)(.+) \| ([^|]+) \|$", re.MULTILINE)
_FAULT = re.compile(r"^\| (?!what went wrong|---)(.+?) \| .+? \| (.+) \|$", re.MULTILINE)


def contents(path: Path) -> set[str]:
    """The tests of a file, those of its classes with the name of the class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    return _names(body) | {f"{node.name}::{name}" for node in classes for name in _names(node.body)}


def _names(body: list[ast.stmt]) -> set[str]:
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}


@each("page", [PROMISES, RELIABILITY])
def test_every_named_test_exists(page: str) -> None:
    listed = NAMED.findall(text_of(page))
    known = {file: contents(ROOT / file) if (ROOT / file).is_file() else set() for file, _ in listed}
    assert [f"{file}::{name}" for file, name in listed if name not in known[file]] == []


def test_every_promise_names_a_test() -> None:
    rows = _PROMISE.findall(text_of(PROMISES))
    assert len(rows) > 50
    assert [promise for promise, tests in rows if not NAMED.search(tests)] == []


def test_every_test_of_the_printed_snippets_holds_a_promise() -> None:
    listed = set(NAMED.findall(text_of(PROMISES)))
    files = [(str(path.relative_to(ROOT)), path) for path in sorted(SNIPPETS.glob("test_*.py"))]
    assert files
    assert [f"{file}::{name}" for file, path in files for name in contents(path) if (file, name) not in listed] == []


def test_every_fault_that_was_found_names_its_test() -> None:
    section = text_of(RELIABILITY).partition("## Found and fixed\n")[2].partition("\n## ")[0]
    rows = _FAULT.findall(section)
    assert len(rows) > 20
    assert [what for what, tests in rows if not NAMED.search(tests)] == []


def test_tables_of_reliability_are_those_of_the_reports() -> None:
    assert rewritten(text_of(RELIABILITY), reports()) == text_of(RELIABILITY), "run python -m tests.faults.machine.page"
