"""Pictures are what their scripts draw, can be read in light and in dark, and are described where they are shown."""

import re

from docs.pictures import canvas, draw
from tests.cases import each
from tests.docs.pages import ROOT, pages, text_of

SHOWN = [
    (page, *found)
    for page in [*pages(), "ARCHITECTURE.md"]
    for found in re.findall(r"!\[([^\]]*)\]\(([^)]+(?:/[^)]+\.svg|\.png))\)", text_of(page))
]
LARGEST_SCREENSHOT = 150_000


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_committed_files_are_what_is_drawn() -> None:
    drawn = {f"{name}.svg": picture().svg() for name, picture in draw.DRAWN.items()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in draw.PLACE.glob("*.svg")}
    differ = sorted(name for name in drawn.keys() | committed.keys() if drawn.get(name) != committed.get(name))
    assert not differ, "run: python -m docs.pictures.draw"


@each("palette", [canvas.LIGHT, canvas.DARK])
def test_words_and_lines_stand_out(palette: canvas.Palette) -> None:
    card = str(palette["card"])
    boxes = {kind: palette[kind] for kind in canvas.KINDS}
    fills = {kind: card if box[0] == "none" else box[0] for kind, box in boxes.items()}
    low_words = {(ink, kind) for ink in ("ink", "soft") for kind in fills if contrast(palette[ink], fills[kind]) < 4.5}
    low_edges = {kind for kind, box in boxes.items() if contrast(box[1], card) < 3}
    assert (low_words, low_edges) == (set(), set())
    assert contrast(str(palette["line"]), card) >= 3


@each("name", draw.DRAWN)
def test_words_are_large_enough(name: str) -> None:
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', draw.DRAWN[name]().svg())]
    assert min(sizes) >= 12


@each(("page", "alt", "path"), SHOWN)
def test_what_is_shown_exists_is_described_and_small_enough(page: str, alt: str, path: str) -> None:
    shown = (ROOT / page).parent / path
    assert shown.is_file()
    assert len(alt.split()) >= 4
    assert path.endswith(".svg") or shown.stat().st_size < LARGEST_SCREENSHOT


def test_every_picture_and_every_screenshot_is_shown() -> None:
    shown = {path.rpartition("/")[2] for _, _, path in SHOWN}
    assert {f"{name}.svg" for name in draw.DRAWN} <= shown
    screenshots = {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    assert {name for name in shown if name.endswith(".png")} == screenshots
