"""Which tests come by a program that a machine may lack: what their code mentions, what that mentions, and so on.

A test comes by a program where its function, a fixture of it or whatever these name starts a process that is not
Python, opens a pseudo-terminal, looks below /usr/lib, or skips for want of something. These are more than need one,
since a class counts with all its methods. Nothing is run. `tests.bare` asks.
"""

import importlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from tests.servers.missing import missing

OURS = {"tests", "examples", "bench", "docs"}
STARTS = {
    "Popen",
    "check_call",
    "check_output",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "openpty",
    "which",
}
BESIDE = "nats-server"
"""Found by way of Python: its wheel has put it there."""
SYSTEM = "/usr/lib"
POSTGRESQL = "tests.conftest"
"""Whose fixtures start nothing else."""


class Mentions:
    """Remembers what it has looked at."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, bool, list[Any]]] = {}

    def come_by_a_program(self, item: pytest.Item) -> bool:
        """Whether this test does."""
        assert isinstance(item, pytest.Function)
        definitions = [each for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
        fixtures = [each.func for each in definitions if each.func.__module__ != POSTGRESQL]
        parameters = item.callspec.params if hasattr(item, "callspec") else None
        return item.get_closest_marker("pgbouncer") is not None or self.reach([item.function, *fixtures, parameters])

    def reach(self, ahead: list[Any]) -> bool:
        """Whether these things do, or what they mention."""
        reached: set[int] = set()
        while ahead:
            thing = ahead.pop()
            if id(thing) in reached:
                continue
            reached.add(id(thing))
            if id(thing) not in self._seen:
                # Kept with what it is about: another thing could get its number.
                self._seen[id(thing)] = (thing, _starts(thing), list(_mentioned_by(thing)))
            _, does, mentioned = self._seen[id(thing)]
            if does:
                return True
            ahead += mentioned
        return False


def _starts(thing: Any) -> bool:
    if isinstance(thing, str | Path):
        return str(thing).startswith(SYSTEM)
    if isinstance(thing, CodeType):
        names = set(thing.co_names)
        is_python = "executable" in names and BESIDE not in thing.co_consts
        return bool(STARTS & names or {"subprocess", "run"} <= names) and not is_python
    return thing is missing


def _mentioned_by(thing: Any) -> Iterator[Any]:
    match thing:
        case FunctionType() if _is_ours(thing):
            original = inspect.unwrap(thing)
            yield original.__code__
            yield from _of_code(original.__code__, original.__globals__)
            for cell in original.__closure__ or ():
                with suppress(ValueError):
                    yield cell.cell_contents
        case CodeType():
            yield from (each for each in thing.co_consts if isinstance(each, CodeType))
        case MethodType():
            yield from (thing.__func__, thing.__self__)
        case staticmethod() | classmethod():
            yield thing.__func__
        case property():
            yield thing.fget
        case partial():
            yield from (thing.func, *thing.args, *thing.keywords.values())
        case type() if _is_ours(thing):
            yield from (*vars(thing).values(), *thing.__bases__)
        case Mapping():
            yield from thing.values()
        case list() | tuple() | set() | frozenset():
            yield from thing
        case _ if _is_ours(type(thing)):
            yield from (type(thing), *getattr(thing, "__dict__", {}).values())


def _of_code(code: CodeType, known: dict[str, Any]) -> Iterator[Any]:
    """What its names and its texts are, in a module that knows these."""
    for name in code.co_names:
        found = known.get(name)
        if name.partition(".")[0] in OURS:
            found = importlib.import_module(name)
        if isinstance(found, ModuleType):
            yield from (getattr(found, other, None) for other in code.co_names)
        else:
            yield found
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, known)
        elif isinstance(constant, str):
            yield constant
            yield from _of_program(constant)
            if "getfixturevalue" in code.co_names and constant in known:
                yield inspect.unwrap(known[constant])


def _of_program(name: str) -> Iterator[Any]:
    """Everything in a package of ours, which is run by its name."""
    parts = name.split(".")
    if parts[0] in OURS and all(part.isidentifier() for part in parts):
        for file in Path(__file__).parents[1].joinpath(*parts).glob("*.py"):
            yield from vars(importlib.import_module(f"{name}.{file.stem}")).values()


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in OURS
