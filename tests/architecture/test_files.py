"""Files stay short enough to be read at one sitting; ruff and import-linter see to everything else."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 400


def test_no_file_is_too_long() -> None:
    paths = [path for folder in ("faststream_outbox", "tests") for path in (ROOT / folder).rglob("*")]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in paths
        if path.suffix in (".py", ".sql")
    }
    assert len(lengths) > 100
    too_long = {name: length for name, length in lengths.items() if length > LONGEST}
    assert too_long == {}, "split these by noun or verb"


def test_what_is_suppressed_has_a_reason() -> None:
    bare = re.compile(r"# (type: ignore|noqa|pyright: ignore)(?![^#\n]*(#| - ))")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "faststream_outbox").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare.search(line)
    ]
    assert found == []
