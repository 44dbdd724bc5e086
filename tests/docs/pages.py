"""The documentation as something that can be run and read: fenced blocks, hidden checks, rows of tables.

A block between ```python fences is run unless the line before it is `<!-- not run: reason -->`. What
stands in `<!-- check: … -->` is Python too, seen by the tests alone. A page may say the same in tabs, with
FastStream and without: each way through the page is a program of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "sql", "shell", "text", "ini"}
FASTSTREAM, WITHOUT = "FastStream", "Without"

_PART = re.compile(
    r"^ *<!-- check:(?P<check>.*?)-->"
    r"|(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n)?^ *```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"`([^`]+)`")
_TAB = re.compile(r'^=== "([^"\n]+)"$')


@dataclass(frozen=True, slots=True)
class Part:
    """Something to run; `line` is where its first line of code stands in the page."""

    language: str
    code: str
    line: int
    reason: str | None
    tab: str | None = None


def pages() -> list[str]:
    """Every page, as a path from the root of the repository."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def text_of(page: str) -> str:
    """A page as it is written."""
    return (ROOT / page).read_text(encoding="utf-8")


def ways(page: str) -> list[str]:
    """The ways through a page: one, or one more for who does without FastStream."""
    return [FASTSTREAM, WITHOUT] if any(part.tab == WITHOUT for part in parts(page)) else [FASTSTREAM]


def parts_of(page: str, way: str) -> Iterator[Part]:
    """What a reader of one way runs: without FastStream, what stands in its tabs and nothing else."""
    return (part for part in parts(page) if (part.tab == WITHOUT) == (way == WITHOUT))


def tabs(text: str) -> dict[int, str]:
    """The label of the tab that a line is in, for every line that is in one."""
    found, label = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if (start := _TAB.match(line)) is not None:
            label = start[1]
        elif line and not line.startswith("    "):
            label = None
        elif label is not None:
            found[number] = label
    return found


def parts(page: str) -> Iterator[Part]:
    """The fenced blocks and the checks of a page, in order."""
    text = text_of(page)
    in_tab = tabs(text)
    for match in _PART.finditer(text):
        group = "check" if match["check"] is not None else "code"
        language = "check" if group == "check" else match["language"]
        line = text.count("\n", 0, match.start(group)) + 1
        code = match[group].strip(" ") if group == "check" else match[group]
        yield Part(language, dedent(code), line, match["reason"], in_tab.get(line))


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its first two lines."""
    section = text_of(page).split(f"\n{heading}\n", 1)[1]
    lines = [line for line in section.split("\n## ", 1)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What a cell sets in code type."""
    return _CODE.findall(cell)
