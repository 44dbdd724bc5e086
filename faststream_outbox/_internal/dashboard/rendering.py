"""Templates and static files: what the screens look like. Used by `page`, `dashboard` and the screens.

Everything that a template prints is escaped, and what cannot be seen is written out. Numbers and times come through the
filters, which are those of `text` and a few that only screens need.

A path from outside is a key of a dictionary of the files that were in the folder at the start, and never becomes a path
on the disk. Their addresses carry a hash of what is in them, so that browsers may keep them for ever. Pages have no
style attributes: the small lines in tables are points of an SVG.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from faststream_outbox._internal.dashboard.guard import KEPT
from faststream_outbox._internal.text import count, counted, size_of_1000, spaced, stamp

PLACE = "/static/"
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, as it is sent."""

    content: bytes
    media_type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """Every static file, by the path that it is served under."""
    return dict(_found(resources.files("faststream_outbox._internal.dashboard").joinpath("static"), PLACE))


def _found(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _found(entry, f"{prefix}{entry.name}/")
        elif (media_type := TYPES.get(entry.name.rpartition(".")[2])) is not None:
            content = entry.read_bytes()
            found.append((prefix + entry.name, Asset(content, media_type, sha256(content).hexdigest()[:12])))
    return found


def address(name: str) -> str:
    """The path of a file, with the version that it has now."""
    path = PLACE + name
    return f"{path}?v={assets()[path].version}"


def answer(asset: Asset, request: Request) -> Response:
    """The file, or that the browser has it already."""
    headers = {"cache-control": KEPT, "etag": f'"{asset.version}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


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


# Control characters, and those that turn the direction of the text around: a stranger's name could look like another.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def visible(value: object) -> object:
    """Text with its invisible characters written out; everything that a template prints goes through it."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def number(value: int, is_estimate: bool = False) -> str:
    """A number that may be a lower bound; of nothing that is not said."""
    return count(value, is_estimate=is_estimate and value > 0)


def rate(value: float | None) -> str:
    """Something a second: 0.4, 12, 1,250."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 0.05 <= value < 10 else f"{value:,.0f}"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago, or in how long."""
    if moment is None:
        return "never"
    distance = (now - moment).total_seconds()
    if abs(distance) < 1:
        return "now"
    said = spaced(abs(distance))
    if 60 <= abs(distance) < 3600:
        # Seconds of minutes would only flicker.
        said = said.partition(" min")[0] + " min"
    return f"{said} ago" if distance > 0 else f"in {said}"


def anchor(*parts: object) -> str:
    """An id of an element that is the same at the next poll, whatever strangers call their queues."""
    return "x" + sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


FILTERS = {
    "number": number,
    "rate": rate,
    "seconds": spaced,
    "stamp": stamp,
    "size": size_of_1000,
}


@cache
def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("faststream_outbox._internal.dashboard", "templates"),
        autoescape=True,
        auto_reload=False,
        finalize=visible,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(FILTERS)
    made.globals.update(anchor=anchor, number=number, counted=counted, ago=ago, sparkline=sparkline)
    return made


def render(template: str, context: dict[str, Any]) -> str:
    """A page of HTML."""
    return environment().get_template(template).render(context)
