"""The page of reliability has the numbers of its reports and no others, and names tests that exist."""

import re

from tests.docs.named_tests import NAMED, missing
from tests.docs.pages import text_of
from tests.faults.machine.page import reports, rewritten

PAGE = "docs/reliability.md"


def test_the_tables_are_those_of_the_reports() -> None:
    assert rewritten(text_of(PAGE), reports()) == text_of(PAGE), "run python -m tests.faults.machine.page"


def test_every_named_test_exists() -> None:
    assert missing(PAGE) == []


def test_every_fault_that_was_found_names_its_test() -> None:
    section = text_of(PAGE).partition("## Found and fixed\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!what went wrong|---)(.+?) \| .+? \| (.+) \|$", section, re.MULTILINE)
    assert len(rows) > 20
    assert [what for what, tests in rows if not NAMED.search(tests)] == []
