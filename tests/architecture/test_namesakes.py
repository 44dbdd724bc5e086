"""A test file has a namesake, or stands in a folder that is named for a purpose."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "faststream_outbox"
HOMES = [PACKAGE / "_internal", PACKAGE]
PURPOSES = {
    "architecture": "rules for the whole repository",
    "bench": "the benchmarks measure what they say",
    "browser": "in a real browser",
    "conformance": "the broker and its test broker do the same",
    "contract": "what the documents of the project promise, by their own snippets",
    "deploy": "files for Prometheus, Grafana and KEDA name what exists",
    "docs": "pages say what is so",
    "examples": "examples run and add up",
    "faults": "processes, servers and lines fail",
    "forwarding": "from an outbox to another broker",
    "models": "protocols, explored state by state, and their models held against the real statements",
    "pgbouncer": "behind PgBouncer",
    "promises": "what several modules keep together; the first sentence of the file says what",
    "rights": "roles with the rights of the security page",
    "topics": "topics as users of the broker see them",
}


def namesakes(file: Path) -> list[Path]:
    """What `file` may be named after: a module of the package, or a tool of the tests that it tests itself.

    `test_<module>_<what>.py` is for a part of the module.
    """
    folder, name = file.parent.relative_to(TESTS), file.stem.removeprefix("test_")
    words = name.split("_")
    names = ["_".join(words[:number]) for number in range(len(words), 0, -1)]
    package = "__init__" if name == folder.name else f"_{name}"
    ours = [home / folder / f"{stem}.py" for home in HOMES for stem in (*names, package)]
    return [*ours, file.with_name(f"{name}.py")]


def test_every_test_file_has_a_namesake_or_a_purpose() -> None:
    files = [file for file in TESTS.rglob("test_*.py") if not PURPOSES.keys() & set(file.relative_to(TESTS).parts)]
    assert len(files) > 50
    strays = [str(file.relative_to(TESTS)) for file in files if not any(path.is_file() for path in namesakes(file))]
    assert strays == [], "name these after the module they are for, or move them to a folder of PURPOSES"


def test_purposes_are_folders_and_no_packages() -> None:
    assert PURPOSES.keys() <= {path.name for path in TESTS.rglob("*") if path.is_dir()}
    assert not PURPOSES.keys() & {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
