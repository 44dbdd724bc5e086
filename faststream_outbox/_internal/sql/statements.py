"""Named statements, and their rows under the names of columns.

Each `.sql` file beside this module holds statements that start with `-- name: <name>` and a line of description.
`{table}`, `{dead}` and the like stand for quoted names and are filled once; `:name` is a parameter, written as each
driver wants it. What stands between `/*if dead*/` and `/*end*/` is left out where there is no dead-letter table. A
shape is a NamedTuple whose fields are the columns of a statement, in order; the modules of rows hold the shapes, and
say which statements return each: a test holds them against the columns that the server reports.

Elsewhere stands only what cannot be such a statement: settings of a connection (`dedicated`, `opening`,
`transactions`), the DDL of partitions, the DDL and catalog questions of `schema`, and the broker's ping. Used by
everything that sends statements.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any, TypeVar

from faststream_outbox._internal.schema.names import AnyNames
from faststream_outbox.errors import InvalidOption

__all__ = [
    "Statement",
    "Statements",
    "statements",
]


_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_PLACE = re.compile(r"\{(\w+)\}")
_IF_DEAD = re.compile(r"/\*if dead\*/(.*?)/\*end\*/", re.DOTALL)
_HEADING = re.compile(r"^-- name: (\w+)\n-- (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with its names filled, in the parameter styles of the drivers."""

    name: str
    description: str
    dollar: str
    pyformat: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values in the order of `dollar`'s placeholders."""
        return tuple(map(values.__getitem__, self.parameters))


def _compiled(name: str, description: str, body: str, names: AnyNames) -> Statement:
    order: dict[str, int] = {}
    places = names.places()

    def number(match: re.Match[str]) -> str:
        return f"${order.setdefault(match[1], len(order) + 1)}"

    # Names come last: one may hold a colon or a percent sign of its own.
    dollar = _filled(_PARAMETER.sub(number, body), places)
    doubled = {place: text.replace("%", "%%") for place, text in places.items()}
    pyformat = _filled(_PARAMETER.sub(r"%(\1)s", body.replace("%", "%%")), doubled)
    return Statement(name, description, dollar, pyformat, tuple(order))


def _filled(text: str, places: Mapping[str, str]) -> str:
    # All at once: a name may look like the place of another.
    return _PLACE.sub(lambda match: places.get(match[1], match[0]), text)


@cache
def _source(file: str) -> Mapping[str, tuple[str, str]]:
    text = resources.files("faststream_outbox._internal.sql").joinpath(f"{file}.sql").read_text(encoding="utf-8")
    parts = _HEADING.split(text)[1:]
    return {
        name: (description, body.strip())
        for name, description, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


class Statements:
    """The statements of some files for one set of tables; each is filled when it is first asked for."""

    __slots__ = ("_filled", "_names", "_source")

    def __init__(self, files: tuple[str, ...], names: AnyNames) -> None:
        self._source = {name: part for file in files for name, part in _source(file).items()}
        self._names = names
        self._filled: dict[str, Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        statement = self._filled.get(name)
        if statement is None:
            description, body = self._source[name]
            has_dead = "dead" in self._names.places()
            body = _IF_DEAD.sub(r"\1" if has_dead else "", body)
            if "{dead}" in body and not has_dead:
                msg = f"{name!r} needs the dead-letter table: pass dlq_table=make_dlq_table(metadata)."
                raise InvalidOption(msg)
            statement = self._filled[name] = _compiled(name, description, body, self._names)
        return statement


@cache
def statements(file: str, names: AnyNames, *more: str) -> Statements:
    """The statements of `file`, and of `more`, with `names` filled in; the same object for the same names."""
    return Statements((file, *more), names)


ShapeT = TypeVar("ShapeT", bound=tuple[Any, ...])


def named(shape: type[ShapeT], rows: Iterable[Sequence[Any]]) -> list[ShapeT]:
    """The rows as this shape. Without a call of Python code for each: claims come by the hundred."""
    return list(map(partial(tuple.__new__, shape), rows))


def column(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The values of a statement that returns one column."""
    return [value for (value,) in rows]
