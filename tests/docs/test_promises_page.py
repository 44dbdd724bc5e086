"""The page of promises names tests that exist, and leaves out none of those that hold its promises."""

import re

from tests.docs.named_tests import NAMED, contents, missing, named
from tests.docs.pages import ROOT, text_of

PAGE = "docs/promises.md"
HOME = ROOT / "tests" / "contract"

_ROW = re.compile(r"^\| (?!promise |---)(.+) \| ([^|]+) \|$", re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    rows = _ROW.findall(text_of(PAGE))
    assert len(rows) > 50
    assert [promise for promise, tests in rows if not NAMED.search(tests)] == []


def test_every_named_test_exists() -> None:
    assert missing(PAGE) == []


def test_every_test_of_the_printed_snippets_holds_a_promise() -> None:
    listed = set(named(PAGE))
    files = [(str(path.relative_to(ROOT)), path) for path in sorted(HOME.glob("test_*.py"))]
    assert files
    assert [f"{file}::{name}" for file, path in files for name in contents(path) if (file, name) not in listed] == []
