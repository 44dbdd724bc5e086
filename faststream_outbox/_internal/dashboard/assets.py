"""Static files: those that were in the folder at the start, by their exact names, and nothing else.

A path from outside is a key of a dictionary and never becomes a path on the disk. Their addresses carry a hash of what
is in them, so that browsers may keep them for ever. Served by `dashboard`, addressed by templates.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

from faststream_outbox._internal.dashboard.headers import KEPT

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
