"""The tests that a page names, and those that there are."""

import ast
import re
from pathlib import Path

from tests.docs.pages import ROOT, text_of

NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def named(page: str) -> list[tuple[str, str]]:
    """Every test that the page names: its file and its name in there."""
    return [(found[1], found[2]) for found in NAMED.finditer(text_of(page))]


def contents(path: Path) -> set[str]:
    """The tests of a file, those of its classes with the name of the class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    return _names(body) | {f"{node.name}::{name}" for node in classes for name in _names(node.body)}


def missing(page: str) -> list[str]:
    """Tests that the page names and that do not exist."""
    listed = named(page)
    files = {file for file, _ in listed}
    known = {file: contents(ROOT / file) if (ROOT / file).is_file() else set() for file in files}
    return [f"{file}::{name}" for file, name in listed if name not in known[file]]


def _names(body: list[ast.stmt]) -> set[str]:
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}
