"""The shape of the package in numbers, counted from the code: `python -m docs.map`, from the root of the repository.

`make map` runs it. `--json` prints the same as JSON, `--root PATH` counts another checkout, which may be older and have
no `_internal`. `tests/architecture/test_map.py` holds the figures: they may shrink, and grow only by an edit.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

PACKAGE = "faststream_outbox"
INSIDE = "_internal"
ROOT = Path(__file__).parents[1]
LONGEST_FILE = 400
STARTS = ("OutboxBroker", "LogWorker", "Worker")
WALKS = {"queue": "The way of a queue's message", "topic": "The way of a topic's message"}
NEVER_AT_IMPORT = {"TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'"}
LOAD = f"""
import sys
sys.path.insert(0, sys.argv[1])
from {PACKAGE} import OutboxBroker
print(*(name for name in sys.modules if name.partition(".")[0] == "{PACKAGE}"))
"""

Trees = dict[str, ast.Module]
Graph = dict[str, set[str]]


def read(package: Path) -> Trees:
    """Every module of a package by its full name, parsed."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def has_code(tree: ast.Module) -> bool:
    """Whether there is anything but a docstring."""
    return len(tree.body) > (ast.get_docstring(tree) is not None)


def at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when the module is imported: none of functions, none for type checkers alone."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) in NEVER_AT_IMPORT:
            yield from at_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield from at_import(ast.iter_child_nodes(node))


def graph(trees: Trees) -> Graph:
    """Which modules each one imports by name. A folder's `__init__`, which runs along with them, is none of these."""
    packages = {name.rpartition(".")[0] for name in trees}

    def named(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        source = node.module or ""
        if node.level:
            above = module.split(".")[: len(module.split(".")) - node.level + (module in packages)]
            source = ".".join([*above, *filter(None, [source])])
        for alias in node.names:
            inner = f"{source}.{alias.name}"
            yield inner if inner in trees else source

    return {
        module: {name for node in at_import(tree.body) for name in named(module, node) if name in trees} - {module}
        for module, tree in trees.items()
    }


def circles(imports: Graph) -> dict[str, frozenset[str]]:
    """The modules that each one imports and is imported by, directly or not. Alone with itself is how it should be."""
    reached = {}
    for start in imports:
        found: set[str] = set()
        todo = [start]
        while todo:
            new = imports[todo.pop()] - found
            found |= new
            todo.extend(new)
        reached[start] = found
    return {one: frozenset({one, *(other for other in reached[one] if one in reached[other])}) for one in imports}


def chains(imports: Graph) -> Callable[[str], list[str]]:
    """What finds the longest chain of imports that begins at a module. A circle counts with all that it has."""
    circle_of = circles(imports)

    @cache
    def longest(circle: frozenset[str]) -> tuple[str, ...]:
        below = {circle_of[target] for module in circle for target in imports[module]} - {circle}
        return (*sorted(circle), *max(map(longest, sorted(below, key=sorted)), key=len, default=()))

    return lambda start: list(longest(circle_of[start]))


def defining(trees: Trees, name: str) -> list[str]:
    """The modules that define a class."""
    return [
        module
        for module, tree in trees.items()
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)
    ]


def protocols(trees: Trees) -> int:
    """How many interfaces are written down for others to fit: classes with Protocol among their bases."""
    classes = (node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    bases = ([ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in found.bases] for found in classes)
    return sum("Protocol" in names for names in bases)


def loaded(root: Path) -> list[str]:
    """The modules that a process has which imports the broker and nothing else."""
    command = [sys.executable, "-c", LOAD, str(root.resolve())]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def walk(page: str, heading: str) -> dict[str, int]:
    """How many files a section of ARCHITECTURE.md sends its reader to, by what they are written in."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    files = set(re.findall(r"`([\w./]+\.(?:py|sql))\b", section))
    return {kind: sum(file.endswith(f".{kind}") for file in files) for kind in ("py", "sql")}


def lengths(place: Path) -> dict[Path, int]:
    """The lines of every file of Python and SQL below a folder."""
    files = (path for path in sorted(place.rglob("*")) if path.suffix in {".py", ".sql"})
    return {path.relative_to(place): len(path.read_text(encoding="utf-8").splitlines()) for path in files}


def folders(files: dict[Path, int], *, is_split: bool) -> dict[str, list[int]]:
    """Files and lines of each folder. What is public counts together, what stands outside of folders too."""
    count, lines = Counter[str](), Counter[str]()
    for path, length in files.items():
        parts = path.parts
        if is_split and parts[0] != INSIDE:
            name = "(public)"
        else:
            parts = parts[1:] if is_split else parts
            name = parts[0] if len(parts) > 1 else "(alone)"
        count[name] += 1
        lines[name] += length
    return {name: [count[name], lines[name]] for name in sorted(count)}


def figures(root: Path) -> dict[str, Any]:
    """Everything that is counted."""
    trees = read(root / PACKAGE)
    is_split = f"{PACKAGE}.{INSIDE}" in trees
    inside = {name for name in trees if not is_split or name.split(".")[1:2] == [INSIDE]}
    imports = graph(trees)
    chain_from = chains(imports)
    at_start = loaded(root)
    page = root / "ARCHITECTURE.md"
    written = page.read_text(encoding="utf-8") if page.is_file() else ""
    files, tests = lengths(root / PACKAGE), lengths(root / "tests")
    beginnings = {name: defining(trees, name) for name in STARTS}
    return {
        "modules": {
            "all": len(trees),
            "public": len(trees) - len(inside),
            "docstring alone": sum(not has_code(trees[name]) for name in inside),
            "with code": sum(has_code(trees[name]) for name in inside),
        },
        "loaded": {"all": len(at_start), "with code": sum(has_code(trees[name]) for name in at_start)},
        "chains": {
            "longest": max(map(chain_from, imports), key=len),
            **{name: max(map(chain_from, homes), key=len) for name, homes in beginnings.items() if homes},
        },
        "circles": sorted(sorted(circle) for circle in set(circles(imports).values()) if len(circle) > 1),
        "protocols": protocols(trees),
        "walks": {name: walk(written, heading) for name, heading in WALKS.items()},
        "too long": [
            str(Path(place, path))
            for place, counted in ((PACKAGE, files), ("tests", tests))
            for path, length in counted.items()
            if length > LONGEST_FILE
        ],
        "folders": {"package": folders(files, is_split=is_split), "tests": folders(tests, is_split=False)},
    }


def short(name: str) -> str:
    """A module as the architecture's page has it; a public one keeps its full name."""
    return name.removeprefix(f"{PACKAGE}.{INSIDE}.")


def summary(found: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The figures, in words."""
    modules, chains, at_start = found["modules"], found["chains"], found["loaded"]
    yield "modules", modules["all"]
    if modules["public"]:
        yield "  public", modules["public"]
    yield "  inside, a docstring alone", modules["docstring alone"]
    yield "  inside, with code", modules["with code"]
    yield "loaded with OutboxBroker", at_start["all"]
    yield "  with code", at_start["with code"]
    yield "longest chain of imports", len(chains["longest"])
    yield from ((f"  from {name}", len(chains[name])) for name in STARTS if name in chains)
    yield "circles of imports", len(found["circles"])
    yield "protocols", found["protocols"]
    for name, counted in found["walks"].items():
        yield f"files of the way of a {name}'s message", f"{counted['py']} and {counted['sql']} of SQL"
    yield f"files over {LONGEST_FILE} lines", len(found["too long"])


def table(package: dict[str, list[int]], tests: dict[str, list[int]]) -> Iterator[str]:
    """Files and lines by folder: tests stand beside what they are for."""
    yield f"{'Python and SQL':<14}{'package':>16}{'tests':>16}"
    yield f"{'folder':<14}{'files':>8}{'lines':>8}{'files':>8}{'lines':>8}"
    columns = [{**side, "all": [*map(sum, zip(*side.values(), strict=True))]} for side in (package, tests)]
    for name in [*sorted({*package, *tests}), "all"]:
        cells = [str(number) for side in columns for number in side.get(name) or ("", "")]
        yield f"{name:<14}" + "".join(f"{cell:>8}" for cell in cells)


def report(found: dict[str, Any]) -> Iterator[str]:
    """All of it, for people: what is counted, what there is of everything, and the chains."""
    yield from (f"{what:<38}{number:>5}" for what, number in summary(found))
    yield ""
    yield from table(**found["folders"])
    for name, chain in found["chains"].items():
        yield f"\n{'The longest chain' if name == 'longest' else f'From {name}'}, {len(chain)} modules:"
        yield fill(" > ".join(map(short, chain)), 116, initial_indent="  ", subsequent_indent="  ")
    yield from (f"\nA circle: {', '.join(map(short, circle))}" for circle in found["circles"])
    yield from (f"\nOver {LONGEST_FILE} lines: {path}" for path in found["too long"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Count a checkout, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m docs.map", description="the shape of the package in numbers")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    given = parser.parse_args(arguments)
    found = figures(given.root)
    print(json.dumps(found, indent=2) if given.json else "\n".join(report(found)))


if __name__ == "__main__":
    main()
