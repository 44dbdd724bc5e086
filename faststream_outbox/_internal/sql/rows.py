"""Rows under the names of their columns, instead of by their places.

A shape is a NamedTuple whose fields are the columns of a statement, in order. `queue_rows` and `log_rows` hold the
shapes, and say which statements return each; a test holds them against the columns that the server reports. Used by
whoever reads what a statement returned.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

ShapeT = TypeVar("ShapeT", bound=tuple[Any, ...])


def named(shape: type[ShapeT], rows: Iterable[Sequence[Any]]) -> list[ShapeT]:
    """The rows as this shape. Without a call of Python code for each: claims come by the hundred."""
    return list(map(partial(tuple.__new__, shape), rows))


def column(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The values of a statement that returns one column."""
    return [value for (value,) in rows]
