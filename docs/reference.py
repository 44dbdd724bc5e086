"""Writes `docs/reference.md`, the list of all public names, from the code: `python -m docs.reference`.

A class or a function says what it is in the first sentence of its docstring, any other name in the string below its
assignment. `tests/docs/test_reference_page.py` holds that the page is what the code says, and that no name is mute.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PACKAGE = "faststream_outbox"
PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Every name that an application may import, by module, with one line each. What is not here stands in
`faststream_outbox._internal` and may change with any release. The pages about a subject say how to use it; editors show
the parameters. `python -m docs.reference` writes this page from the code.
"""
OLD = {"events.recorder", "events.types", "relay.uri"}
"""Paths that were on pages once: they go on working, and nothing new says them."""
OF_OTHERS = {
    "NoCast": "FastStream's own: a parameter that is passed on as it is.",
}


def modules() -> Iterator[ModuleType]:
    """The package itself and every public module, by name."""
    package = importlib.import_module(PACKAGE)
    yield package
    for found in sorted(pkgutil.walk_packages(package.__path__, f"{PACKAGE}."), key=lambda module: module.name):
        short = found.name.removeprefix(f"{PACKAGE}.")
        if not short.startswith("_") and short not in OLD:
            yield importlib.import_module(found.name)


def names(module: ModuleType) -> list[str]:
    """What may be imported of a module: its list, or what it defines."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed, key=str.lower)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_")]


def line_of(module: ModuleType, name: str) -> str | None:
    """The first sentence of what a name says of itself."""
    value = getattr(module, name)
    text = _below(module, name)
    if text is None and (inspect.isclass(value) or inspect.isfunction(value) or hasattr(value, "__wrapped__")):
        text = inspect.getdoc(value)
    return OF_OTHERS.get(name) or (None if not text else " ".join(text.split("\n\n")[0].split()))


def _below(module: ModuleType, name: str) -> str | None:
    """The string below the assignment of a name, where it was imported from."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    body = ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            said = after.value if isinstance(after, ast.Expr) else None
            return str(said.value) if isinstance(said, ast.Constant) else None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _below(importlib.import_module(node.module), alias.name)
    return None


def written() -> str:
    """The page."""
    parts = [HEAD]
    for module in modules():
        rows = [f"| `{name}` | {(line_of(module, name) or '').replace('|', chr(92) + '|')} |" for name in names(module)]
        if rows:
            parts.append("\n".join([f"## {module.__name__}\n", "| name | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def mute() -> list[str]:
    """Names that say nothing of themselves."""
    return [f"{module.__name__}.{name}" for module in modules() for name in names(module) if not line_of(module, name)]


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
