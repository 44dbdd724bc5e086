"""The map names only what exists: layers, folders, files and what is in them."""

import re
import tomllib

from tests.cases import each
from tests.docs.pages import ROOT, text_of

PUBLIC = ROOT / "faststream_outbox"
PACKAGE = PUBLIC / "_internal"
PAGE = "ARCHITECTURE.md"
NAMED = sorted(set(re.findall(r"`([\w./*]+\.(?:py|md|sql|toml))(?:: ([\w.]+))?`", text_of(PAGE))))
FOLDERS = re.findall(r"^\| `([\w/]+/)` \| (.+) \|$", text_of(PAGE), re.MULTILINE)


def test_it_draws_the_layers_that_exist() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [[name.strip(" ()") for name in layer.split("|")] for layer in linter["contracts"][1]["layers"]]
    there = [
        [name for name in layer if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()] for layer in layers
    ]
    drawn = text_of(PAGE).split("```")[1].strip().splitlines()
    assert [[part.split("(")[0].strip() for part in line.split("      ")] for line in drawn] == there


@each(("file", "name"), NAMED)
def test_files_and_functions_that_it_names_exist(file: str, name: str) -> None:
    found = [*PACKAGE.glob(file), *PUBLIC.glob(file), *ROOT.glob(file)]
    assert found
    for part in name.split(".") if name else ():
        assert re.search(rf"^\s*(async )?(def|class) {part}\b", found[0].read_text(), re.MULTILINE), part


@each(("folder", "said"), FOLDERS)
def test_folders_and_their_files_exist(folder: str, said: str) -> None:
    for name in re.findall(r"`(\w+)`", said):
        assert (PACKAGE / folder / f"{name}.py").is_file(), name
