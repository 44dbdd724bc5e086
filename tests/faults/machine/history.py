"""The history of a run: what every process did and when, one JSON line for each event.

A process appends to a file of its own, a line with one write: what it did before a kill -9 is in the file. Time is
CLOCK_MONOTONIC, which all processes of a machine share and which no shifted clock changes. `Pen` writes, `History` is
the machine's own pen and is told of every fault; `read` gives all events of a run in the order of time.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NANO = 1_000_000_000
MOST_SAID = 500
PIECE = 1_000_000
"""Bytes that are read at a time."""

BORN, READY, ENDED, BEAT, DIED = "born", "ready", "ended", "beat", "died"
BEGUN, COMMITTED, UNCERTAIN, ROLLED_BACK = "begun", "committed", "uncertain", "rolled_back"
STARTED, FINISHED = "started", "finished"
STRUCK, HEALED = "struck", "healed"
MISSED, FAILED = "missed", "failed"
DRAINED, STUCK, STOPPED = "drained", "stuck", "stopped"
CALM = "calm"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a process did."""

    at: int
    """Nanoseconds of CLOCK_MONOTONIC."""
    pid: int
    role: str
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.at / NANO

    def __str__(self) -> str:
        said = " ".join(f"{name}={value}" for name, value in self.data.items())
        return f"{self.seconds:.3f} {self.role} {self.pid} {self.kind} {said}".rstrip()


class Pen:
    """Appends to the file of this process."""

    def __init__(self, directory: Path | str, role: str) -> None:
        self._role = role
        path = Path(directory) / f"{role}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, **data: Any) -> None:
        """Say that this has just happened."""
        line = json.dumps([time.monotonic_ns(), os.getpid(), self._role, kind, data], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class History(Pen):
    """The machine's own pen, in the directory of one run."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory, "machine")
        self.directory = Path(directory)

    def struck(self, kind: str, detail: str, **more: Any) -> None:
        """A fault begins."""
        self.write(STRUCK, fault=kind, detail=detail, **more)

    def healed(self, kind: str) -> None:
        """A fault is over."""
        self.write(HEALED, fault=kind)

    def calm(self) -> None:
        """Nothing is broken for a while."""
        self.write(CALM)

    def missed(self, kind: str, why: BaseException) -> None:
        """A strike could not strike this time."""
        self.write(MISSED, fault=kind, why=repr(why)[:MOST_SAID])

    def failed(self, what: str, error: BaseException) -> None:
        """The machine itself failed: what it finds is not the whole."""
        self.write(FAILED, what=what, error=repr(error)[:MOST_SAID])


def parse(lines: Iterable[str]) -> Iterable[Event]:
    """Events of a file; a line that a kill cut short says nothing."""
    for line in lines:
        try:
            at, pid, role, kind, data = json.loads(line)
        except ValueError:
            continue
        yield Event(at, pid, role, kind, data)


def read(directory: Path | str) -> list[Event]:
    """All events of a run, by time; those of one process in the order of writing.

    An hour has millions of them, so that words which come again are kept once.
    """
    words: dict[str, str] = {}
    events: list[Event] = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as file:
            while lines := file.readlines(PIECE):
                events += _slim(lines, words)
    events.sort(key=lambda event: event.at)
    return events


def _slim(lines: list[str], words: dict[str, str]) -> Iterator[Event]:
    try:
        # Together: names of fields are the same strings then.
        found = json.loads(f"[{','.join(lines)}]")
    except ValueError:
        yield from parse(lines)
        return
    for at, pid, role, kind, data in found:
        for name, value in data.items():
            if type(value) is str:
                data[name] = words.setdefault(value, value)
            elif name == "ids":
                data[name] = tuple(words.setdefault(each, each) for each in value)
        yield Event(at, pid, words.setdefault(role, role), words.setdefault(kind, kind), data)
