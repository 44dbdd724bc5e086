"""The package may shrink by itself, and grows only where these limits are raised; and the map counts what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs import map as shape
from tests.cases import each

LIMITS = {
    "modules": 263,
    "longest chain": 20,
    "chain from OutboxBroker": 17,
    "circles": 0,
    "loaded": 98,
    "loaded, with code": 85,
    "protocols": 15,
    "files over 400 lines": 0,
}
TINY = {
    "__init__.py": """
'A package.'

def __getattr__(name):
    from faststream_outbox.top import OutboxBroker

    return OutboxBroker
""",
    "top.py": """
from typing import TYPE_CHECKING

from faststream_outbox.middle import leaf

if TYPE_CHECKING:
    from faststream_outbox import checked
else:
    checked = None

class OutboxBroker:
    def late(self):
        import faststream_outbox.late
""",
    "middle/__init__.py": "'A folder.'",
    "middle/leaf.py": """
try:
    from . import bottom
except ImportError:
    bottom = None
""",
    "middle/bottom.py": """
import typing

T = typing.TypeVar("T")

class Speaks(typing.Protocol[T]):
    pass
""",
    "middle/asked.sql": "SELECT 1;",
    "checked.py": "from faststream_outbox import top",
    "late.py": "import faststream_outbox.top",
}
CHAIN = ["faststream_outbox.top", "faststream_outbox.middle.leaf", "faststream_outbox.middle.bottom"]
PAGE = """
## The way of a queue's message

`one.py: f` and `g`, then `two/three.py` with `sql/a.sql`; `one.py: h` again.

## The way of a topic's message

`one.py`

## Elsewhere

`four.py`
"""


def written(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


def tiny(root: Path) -> Path:
    return written(root / "faststream_outbox", TINY).parent


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return shape.figures(shape.ROOT)


@pytest.mark.slow
@each(("what", "limit"), LIMITS.items())
def test_the_package_has_not_grown(here: dict[str, Any], what: str, limit: int) -> None:
    counted = {
        "modules": here["modules"]["all"],
        "longest chain": len(here["chains"]["longest"]),
        "chain from OutboxBroker": len(here["chains"]["OutboxBroker"]),
        "circles": len(here["circles"]),
        "loaded": here["loaded"]["all"],
        "loaded, with code": here["loaded"]["with code"],
        "protocols": here["protocols"],
        "files over 400 lines": len(here["too long"]),
    }
    assert 0 <= counted[what] <= limit, "make map shows it; raise the limit only for what is worth it"


@pytest.mark.slow
def test_it_finds_what_it_looks_for_here(here: dict[str, Any]) -> None:
    assert {*here["chains"]} == {"longest", *shape.STARTS}
    assert all(walk["py"] for walk in here["walks"].values())
    modules = dict(here["modules"])
    assert modules.pop("all") == sum(modules.values())
    assert modules["public"]


def test_a_chain_has_what_runs_when_a_module_is_imported(tmp_path: Path) -> None:
    imports = shape.graph(shape.read(tiny(tmp_path) / "faststream_outbox"))
    longest = shape.chains(imports)
    assert longest("faststream_outbox.top") == CHAIN
    assert longest("faststream_outbox.late") == ["faststream_outbox.late", *CHAIN]
    assert imports["faststream_outbox"] == set()
    assert {module for circle in shape.circles(imports).values() for module in circle} == {*imports}
    assert {len(circle) for circle in shape.circles(imports).values()} == {1}


def test_a_folder_is_a_link_where_it_is_imported_by_name(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "f/__init__.py": "x = 1",
        "f/a.py": "",
        "b.py": "from p.f import x",
        "c.py": "import p.f.a",
    }
    assert shape.graph(shape.read(written(tmp_path / "p", files))) == {
        "p": set(),
        "p.f": set(),
        "p.f.a": set(),
        "p.b": {"p.f"},
        "p.c": {"p.f.a"},
    }


def test_a_circle_is_found_and_counts_with_all_that_it_has() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert shape.circles(imports)["b"] == shape.circles(imports)["c"] == {"b", "c"}
    assert shape.chains(imports)("a") == ["a", "b", "c", "d"]


@each(
    ("source", "expected"),
    [("", False), ('"""Said."""', False), ('"""Said."""\nx = 1', True), ("import os", True)],
)
def test_a_docstring_is_no_code(source: str, expected: bool) -> None:
    assert shape.has_code(shape.ast.parse(source)) is expected


def test_a_way_sends_to_the_files_of_its_own_section() -> None:
    walks = {name: shape.walk(PAGE, heading) for name, heading in shape.WALKS.items()}
    assert walks == {"queue": {"py": 2, "sql": 1}, "topic": {"py": 1, "sql": 0}}
    assert shape.walk("", "The way of a queue's message") == {"py": 0, "sql": 0}


def test_folders_are_counted_on_each_side_of_the_public_line() -> None:
    files = {
        Path(path): 10 for path in ("errors.py", "_internal/queue/a/b.py", "_internal/queue/c.py", "_internal/d.py")
    }
    assert shape.folders(files, is_split=True) == {"(alone)": [1, 10], "(public)": [1, 10], "queue": [2, 20]}


def test_a_checkout_without_a_public_line_can_be_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tiny(tmp_path)
    shape.main(["--root", str(root), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["modules"] == {"all": 7, "public": 0, "docstring alone": 1, "with code": 6}
    assert found["loaded"] == {"all": 5, "with code": 4}
    assert found["chains"] == {"longest": ["faststream_outbox.checked", *CHAIN], "OutboxBroker": CHAIN}
    assert (found["circles"], found["protocols"], found["too long"]) == ([], 1, [])
    assert found["folders"] == {"package": {"(alone)": [4, 22], "middle": [4, 14]}, "tests": {}}
    shape.main(["--root", str(root)])
    assert "The longest chain, 4 modules:" in capsys.readouterr().out
