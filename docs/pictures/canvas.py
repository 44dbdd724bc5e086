"""A sheet of SVG to draw on: boxes, words and arrows in the colours of one palette, light and dark.

The card behind everything is opaque, so that a picture can be read wherever it is shown: a page that is
dark while the reader's system is light shows a light card. Used by the pictures beside this file.
"""

from html import escape

WIDTH = 680
TEXT, SMALL = 14, 13
KINDS = ("plain", "blue", "green", "amber", "red", "none")

# Per scheme: what words are drawn with, and the fill and the edge of each kind of box.
LIGHT = {
    "card": "#ffffff", "edge": "#d0d7de", "ink": "#1f2328", "soft": "#4d5661", "line": "#57606a",
    "plain": ("#f3f5f8", "#818b98"), "blue": ("#ddf0ff", "#0969da"), "green": ("#dcf7e3", "#1a7f37"),
    "amber": ("#fff3c4", "#9a6700"), "red": ("#ffe6e3", "#cf222e"), "none": ("none", "#818b98"),
}  # fmt: skip
DARK = {
    "card": "#12161c", "edge": "#343b45", "ink": "#eef2f6", "soft": "#b4bec9", "line": "#9aa5b1",
    "plain": ("#232a33", "#7d8793"), "blue": ("#123059", "#58a6ff"), "green": ("#12351f", "#3fb950"),
    "amber": ("#3d2f08", "#d7a32b"), "red": ("#4a1a1a", "#ff7b72"), "none": ("none", "#7d8793"),
}  # fmt: skip
Palette = dict[str, str | tuple[str, str]]


def style(palette: Palette) -> str:
    """The rules of a palette; sizes and fonts are the same in both."""
    rules = [
        f".card{{fill:{palette['card']};stroke:{palette['edge']}}}",
        f".ink{{fill:{palette['ink']}}}.soft{{fill:{palette['soft']}}}.tip{{fill:{palette['line']}}}",
        f".line{{stroke:{palette['line']};fill:none;stroke-width:1.6}}.rule{{stroke:{palette['edge']}}}",
    ]
    for kind in KINDS:
        fill, edge = palette[kind]
        rules.append(f".{kind}{{fill:{fill};stroke:{edge};stroke-width:1.5}}")
    return "".join(rules)


class Canvas:
    """Collects elements; `svg` is the file. Coordinates are pixels."""

    def __init__(self, height: int, title: str) -> None:
        self._height, self._title = height, title
        self._body: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, kind: str = "plain", *lines: str, dashed: bool = False
    ) -> None:
        """A box with lines of words in its middle; a line in backticks is code, one after a `~` is small."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._body.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6"{dash}/>')
        first = y + h / 2 - (len(lines) - 1) * 9
        for number, line in enumerate(lines):
            self.say(x + w / 2, first + number * 18 + 5, line, anchor="middle")

    def say(self, x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> None:
        """Words on a line; `~` before them makes them small and soft, backticks around them code."""
        soft = words.startswith("~")
        words = words.removeprefix("~")
        code = words.startswith("`") and words.endswith("`")
        classes = ("soft" if soft else "ink") + (" code" if code else "")
        size = SMALL if soft or code else TEXT
        weight = ' font-weight="600"' if bold else ""
        self._body.append(
            f'<text class="{classes}" x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>'
            f"{escape(words.strip('`'))}</text>"
        )

    def arrow(
        self, *points: tuple[float, float], words: str = "", at: tuple[float, float] = (0, 0), dashed: bool = False
    ) -> None:
        """A line through the points with a tip at its end, and words that stand where `at` says."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._body.append(f'<path class="line" d="{path}" marker-end="url(#tip)"{dash}/>')
        if words:
            self.say(*at, f"~{words}", anchor="middle")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A line without a tip; a `rule` is one that only divides."""
        self._body.append(f'<path class="{kind}" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"/>')

    def svg(self, first: Palette = LIGHT, second: Palette | None = DARK) -> str:
        """The picture in the first palette, and in the second where the reader's system is dark."""
        dark = f"@media (prefers-color-scheme:dark){{{style(second)}}}" if second else ""
        size = f'width="{WIDTH}" height="{self._height}" viewBox="0 0 {WIDTH} {self._height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
                f'<title id="title">{escape(self._title)}</title>',
                "<style>text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
                ".code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
                f"{style(first)}{dark}</style>",
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
                ' orient="auto-start-reverse"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>',
                f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self._height - 1}" rx="10"/>',
                *self._body,
                "</svg>\n",
            ]
        )
