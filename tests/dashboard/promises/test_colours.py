"""Words stand out from their ground as WCAG AA wants it, in both schemes; red is only for what is wrong."""

import re

from faststream_outbox._internal.dashboard.rendering import assets
from tests.cases import each
from tests.docs.test_pictures import contrast

_CSS = assets()["/static/colours.css"].content.decode()
_BLOCKS = re.findall(r"([^{}]+)\{([^{}]*--ground[^{}]*)\}", _CSS)
SCHEMES = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for _, block in _BLOCKS]

GROUNDS = ("ground", "card", "hover", "side", "code", "chosen")
WORDS = [
    *((ink, ground) for ink in ("ink", "muted") for ground in GROUNDS),
    *((ink, ground) for ink in ("bad", "accent", "good", "warn", "zero") for ground in ("ground", "card", "hover")),
    ("on-accent", "accent"),
    ("on-bad", "bad"),
    ("accent", "accent-ground"),
    ("muted", "accent-ground"),
    ("bad", "bad-ground"),
    ("warn", "warn-ground"),
    ("good", "good-ground"),
]
LINES = [
    *((line, ground) for line in ("edge", "focus") for ground in ("ground", "card", "side")),
    ("series-soft", "card"),
    ("accent", "card"),
    *((f"slot-{number}", "card") for number in range(6)),
]


def test_dark_is_the_same_by_switch_and_by_system() -> None:
    assert len(SCHEMES) == 3
    assert SCHEMES[1] == SCHEMES[2]
    assert SCHEMES[0].keys() == SCHEMES[1].keys()


@each("scheme", SCHEMES)
def test_words_stand_out(scheme: dict[str, str]) -> None:
    low = {pair: round(contrast(scheme[pair[0]], scheme[pair[1]]), 2) for pair in WORDS}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}


@each("scheme", SCHEMES)
def test_lines_stand_out(scheme: dict[str, str]) -> None:
    low = {pair: round(contrast(scheme[pair[0]], scheme[pair[1]]), 2) for pair in LINES}
    assert {pair: value for pair, value in low.items() if value < 3} == {}


def test_no_colour_stands_elsewhere() -> None:
    text = assets()["/static/dashboard.css"].content.decode()
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", text) == []
