"""What applications may import is a short list of modules, and everything else stands under `_internal`."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import faststream_outbox
from tests.cases import each

ROOT = Path(__file__).parents[2]
PACKAGE = "faststream_outbox"
REEXPORT = [
    "broker",
    "dashboard",
    "doctor",
    "events",
    "events.recorder",
    "events.types",
    "fastapi",
    "health",
    "inbox",
    "log",
    "metrics",
    "overview",
    "publish",
    "queue",
    "relay",
    "relay.uri",
    "schema",
    "testing",
]
HOLD = [
    "__main__",
    "annotations",
    "cli",
    "errors",
    "metrics.opentelemetry",
    "metrics.prometheus",
    "opentelemetry",
    "prometheus",
    "relay.sqs",
    "testing.postgres",
]
WITHOUT_A_LIST = {"__main__", "cli", "errors"}
FROM_INSIDE = {
    "docs/pictures": "draws what is inside",
    "docs/reference.py": "says where the line is",
    "tests/contract/test_retries.py": "an application that extended a private class of an earlier version",
}
_FENCE = re.compile(r"^```python[^\n]*\n(.*?)^```|<!-- check:\n(.*?)-->", re.MULTILINE | re.DOTALL)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}".rstrip("."))


def definitions(name: str) -> set[str]:
    tree = ast.parse(Path(str(module(name).__file__)).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def readers() -> Iterator[tuple[str, str]]:
    """What stands for an application: its name, and its source."""
    for folder in ("examples", "tests/contract", "tests/typing", "docs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for match in _FENCE.finditer(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), match[1] or match[2]


def test_public_modules_are_these() -> None:
    found = {
        each.name.removeprefix(f"{PACKAGE}.")
        for each in pkgutil.walk_packages(faststream_outbox.__path__, f"{PACKAGE}.")
    }
    assert {name for name in found if not name.startswith("_internal")} == {*REEXPORT, *HOLD}


@each("name", ["", *REEXPORT, *sorted({*HOLD} - WITHOUT_A_LIST)])
def test_every_name_of_a_list_can_be_imported(name: str) -> None:
    public = module(name)
    assert [missing for missing in public.__all__ if not hasattr(public, missing)] == []


@each("name", REEXPORT)
def test_a_module_that_exports_again_has_nothing_else(name: str) -> None:
    public = module(name)
    shown = {
        found
        for found in vars(public)
        if not found.startswith("_") and not isinstance(getattr(public, found), ModuleType)
    }
    on_demand = {"import_module", "Any", "TYPE_CHECKING"} if "__getattr__" in vars(public) else set()
    assert shown - on_demand <= {*public.__all__}
    assert definitions(name) <= {"__getattr__", "__dir__"}


def test_the_package_itself_only_imports_on_demand() -> None:
    assert definitions("") == {"__getattr__", "__dir__"}


def test_whoever_stands_for_an_application_imports_public_names_only() -> None:
    inside = {name for name, source in readers() if f"{PACKAGE}._internal" in source}
    assert {name for name in inside if not any(name.startswith(allowed) for allowed in FROM_INSIDE)} == set()
