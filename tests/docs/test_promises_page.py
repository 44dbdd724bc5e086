"""The page of promises names tests that exist, and leaves out none of those that hold its promises."""

import ast
import re
from pathlib import Path

from tests.docs.pages import ROOT, text_of

PAGE = "docs/promises.md"
HOME = ROOT / "tests" / "contract"

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
_ROW = re.compile(r"^\| (?!promise |---)(.+) \| ([^|]+) \|$", re.MULTILINE)


def named() -> list[tuple[str, str]]:
    """Every test that the page names: its file and its name in there."""
    return [(found[1], found[2]) for found in _NAMED.finditer(text_of(PAGE))]


def contents(path: Path) -> set[str]:
    """The tests of a file, those of its classes with the name of the class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    return _names(body) | {f"{node.name}::{name}" for node in classes for name in _names(node.body)}


def _names(body: list[ast.stmt]) -> set[str]:
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_promise_names_a_test() -> None:
    rows = _ROW.findall(text_of(PAGE))
    assert len(rows) > 50
    assert [promise for promise, tests in rows if not _NAMED.search(tests)] == []


def test_every_named_test_exists() -> None:
    files = {file for file, _ in named()}
    known = {file: contents(ROOT / file) if (ROOT / file).is_file() else set() for file in files}
    assert [f"{file}::{name}" for file, name in named() if name not in known[file]] == []


def test_every_test_of_the_printed_snippets_holds_a_promise() -> None:
    listed = set(named())
    files = [(str(path.relative_to(ROOT)), path) for path in sorted(HOME.glob("test_*.py"))]
    assert files
    assert [f"{file}::{name}" for file, path in files for name in contents(path) if (file, name) not in listed] == []
