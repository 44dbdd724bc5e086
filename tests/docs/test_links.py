"""Pages that are named outside of the documentation exist, and so do the headings that links go to.

Links between pages are held by `mkdocs build --strict`.
"""

import re
from pathlib import Path

from tests.cases import each
from tests.docs.pages import ROOT, text_of

AT_THE_ROOT = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
LINKS = [
    (page, target, heading)
    for page in AT_THE_ROOT
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]+)#?([^)]*)\)", text_of(page))
]
FOLDERS = ["faststream_outbox", "tests", "bench", "examples"]


def headings(path: Path) -> set[str]:
    """Anchors of a page, as GitHub and mkdocs make them of plain headings."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@each(("page", "target", "heading"), LINKS)
def test_links_go_somewhere(page: str, target: str, heading: str) -> None:
    path = ROOT / target
    assert path.exists()
    assert not heading or heading in headings(path)


def test_pages_that_code_names_exist() -> None:
    files = [
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
        *(file for at in FOLDERS for file in (ROOT / at).rglob("*.py")),
    ]
    named = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert {item for item in named if not (ROOT / item[1]).is_file()} == set()
