"""The layers of the package, as `[tool.importlinter]` in pyproject.toml has them."""

import tomllib
from pathlib import Path
from typing import Any

from docs.pictures.canvas import WIDTH, Canvas

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "faststream_outbox" / "_internal"
ROW = 50
SAID = {
    "testing": "TestOutboxBroker, PostgresServer",
    "broker": "FastStream's broker",
    "queue": "engine of queues",
    "log": "engine of topics",
    "engine": "what both do alike",
    "memory": "the engines' double, for tests",
    "doctor": "what is wrong",
    "connections": "the caller's, and our own",
    "sql": "named statements",
    "schema": "tables and their checks",
}


def contracts() -> list[dict[str, Any]]:
    """What the linter holds."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def rows() -> list[list[str]]:
    """The layers from above, without what does not exist yet."""
    layers = [[name.strip(" ()") for name in layer.split("|")] for layer in contracts()[1]["layers"]]
    there = ([name for name in layer if _exists(name)] for layer in layers)
    return [layer for layer in there if layer]


def _exists(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def kind(name: str) -> str:
    """Blue is what may import FastStream, green are the engines."""
    if f"faststream_outbox._internal.{name}" in contracts()[2]["allowed_importers"]:
        return "blue"
    return "green" if name in {"queue", "log"} else "plain"


def draw() -> Canvas:
    """The picture of the map."""
    layers = rows()
    sheet = Canvas(len(layers) * ROW + 98, "The layers of the package")
    sheet.say(24, 34, "Imports point down only; packages of one row do not know each other.")
    for index, layer in enumerate(layers):
        y = 50 + index * ROW
        wide = (WIDTH - 48 - 28) / len(layer)
        for number, name in enumerate(layer):
            words = [name, f"~{SAID[name]}"] if name in SAID else [name]
            sheet.box(24 + number * wide, y, wide - 8, ROW - 8, kind(name), *words)
    bottom = 50 + len(layers) * ROW
    sheet.arrow((WIDTH - 34, 52), (WIDTH - 34, bottom - 10))
    for x, colour, words in ((24, "blue", "may import FastStream"), (216, "green", "the engines")):
        sheet.box(x, bottom + 10, 16, 16, colour)
        sheet.say(x + 23, bottom + 23, f"~{words}")
    return sheet
