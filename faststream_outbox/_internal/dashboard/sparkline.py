"""The points of a small line in a table, for an SVG: our pages have no style attributes. Pure."""

from collections.abc import Sequence

WIDTH, HEIGHT = 120, 24


def sparkline(values: Sequence[float]) -> str:
    """`points` of a polyline in a box of 120 by 24; empty where there is nothing to see."""
    if len(values) < 2 or not any(values):
        return ""
    top = max(values)
    step = WIDTH / (len(values) - 1)
    return " ".join(
        f"{place * step:.1f},{HEIGHT - 2 - value / top * (HEIGHT - 4):.1f}" for place, value in enumerate(values)
    )
