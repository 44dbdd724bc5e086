"""One version, wherever it is asked for; and nobody is told to install another package under our name."""

import re
import tomllib
from pathlib import Path

import faststream_outbox
from tests.cases import each

ROOT = Path(__file__).parents[2]
WRITTEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "Makefile",
    *(path for folder in ("docs", "faststream_outbox", "examples") for path in sorted((ROOT / folder).rglob("*.*"))),
]
INSTALL_BY_NAME = re.compile(
    r"\b(?:pip3?|uv|pipx|poetry|pdm|rye)\b[^\n]*\b(?:install|add)\b[^\n]*faststream[-_]outbox(?!-\d)"
)


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert faststream_outbox.__version__ == project["version"]


def test_version_continues_the_line_that_is_on_pypi() -> None:
    assert int(faststream_outbox.__version__.split(".")[0]) >= 1


@each("text", ["pip install 'faststream-outbox[demo]'", "uv add faststream-outbox"])
def test_installing_by_name_is_recognised(text: str) -> None:
    assert INSTALL_BY_NAME.search(text)


def test_nobody_is_told_to_install_by_name() -> None:
    # The package of that name on PyPI is another one until this one is released.
    reported = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in WRITTEN
        if path.suffix in ("", ".md", ".py", ".toml", ".txt", ".sql")
        for line in path.read_text(encoding="utf-8").splitlines()
        if INSTALL_BY_NAME.search(line)
    ]
    assert reported == []
