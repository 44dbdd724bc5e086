"""The documentation as something that can be run and read: fenced blocks, hidden checks, rows of tables.

A block between ```python fences is run unless the line before it is `<!-- not run: reason -->`. What
stands in `<!-- check: … -->` is Python too, seen by the tests alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "sql", "shell", "text", "ini"}

_PART = re.compile(
    r"^ *<!-- check:(?P<check>.*?)-->"
    r"|(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n)?^ *```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Part:
    """Something to run; `line` is where its first line of code stands in the page."""

    language: str
    code: str
    line: int
    reason: str | None


def pages() -> list[str]:
    """Every page, as a path from the root of the repository."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def text_of(page: str) -> str:
    """A page as it is written."""
    return (ROOT / page).read_text(encoding="utf-8")


def parts(page: str) -> Iterator[Part]:
    """The fenced blocks and the checks of a page, in order."""
    text = text_of(page)
    for match in _PART.finditer(text):
        group = "check" if match["check"] is not None else "code"
        language = "check" if group == "check" else match["language"]
        line = text.count("\n", 0, match.start(group)) + 1
        code = match[group].strip(" ") if group == "check" else match[group]
        yield Part(language, dedent(code), line, match["reason"])


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its first two lines."""
    section = text_of(page).split(f"\n{heading}\n", 1)[1]
    lines = [line for line in section.split("\n## ", 1)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What a cell sets in code type."""
    return _CODE.findall(cell)
