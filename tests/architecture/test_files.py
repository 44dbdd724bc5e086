"""Files stay short, modules say what they are, and FastStream's private parts have one door."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "faststream_outbox"
LONGEST = 400
DOOR = PACKAGE / "broker" / "_faststream.py"


def files(*folders: str, endings: tuple[str, ...] = (".py",)) -> list[str]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in endings)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def imported_names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("name", files("faststream_outbox", "tests", endings=(".py", ".sql")))
def test_file_is_short(name: str) -> None:
    lines = len((ROOT / name).read_text().splitlines())
    assert lines <= LONGEST, f"{name} has {lines} lines: split it by noun or verb"


@pytest.mark.parametrize("name", files("faststream_outbox"))
def test_module_says_what_it_is(name: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / name).read_text())), f"{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in files("faststream_outbox") if ROOT / name != DOOR])
def test_module_does_not_import_private_parts_of_faststream(name: str) -> None:
    private = {found for found in imported_names(ROOT / name) if found.startswith("faststream._internal")}
    assert not private, f"{name} imports {private}: that belongs into broker/_faststream.py"
