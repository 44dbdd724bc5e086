"""Asking before something is changed, and showing how far it has got: both at a terminal alone.

Without a terminal nobody could answer, so a script has to say `--yes`, and gets the answer without the progress, which
goes to the standard error. While a question or an editor is open, Ctrl-C is theirs: the event loop would only note it
and wait on. Used by commands that replay, purge, clean, edit or move.
"""

import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.printing import console

Handler = Callable[[int, FrameType | None], Any] | int


def agreed(question: str, *, yes: bool) -> bool:
    """Whether to go on."""
    if yes:
        return True
    if not can_ask():
        msg = "This asks before it changes anything, and nobody can answer without a terminal. Pass --yes to go on."
        raise Refusal(msg)
    with interrupts(signal.default_int_handler):
        while True:
            typer.echo(f"{question} [y/N]: ", nl=False, err=True)
            wait_for_answer()
            answer = sys.stdin.readline().strip().lower()
            if answer in {"", "n", "no", "y", "yes"}:
                return answer.startswith("y")


def wait_for_answer() -> None:
    """Return when a line was typed; a Ctrl-C that comes while this begins to wait is not lost, as it is in input()."""
    awake, interrupted = os.pipe()
    os.set_blocking(interrupted, False)
    try:
        before = signal.set_wakeup_fd(interrupted)
        try:
            select.select([sys.stdin, awake], [], [])
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(awake)
        os.close(interrupted)


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin.isatty()


def edited(content: bytes, suffix: str) -> bytes:
    """What comes back of $VISUAL or $EDITOR."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        msg = "Which editor? Set EDITOR, or give the new body with --payload or --payload-file."
        raise Refusal(msg)
    descriptor, name = tempfile.mkstemp(prefix="outbox-", suffix=suffix)
    path = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        # Our own handler and not SIG_IGN, which the editor would inherit.
        with interrupts(lambda _number, _frame: None):
            try:
                ended = subprocess.run([*shlex.split(editor), name], check=False).returncode
            except (OSError, ValueError) as error:
                msg = f"The editor {editor!r} cannot be started: {error}"
                raise Refusal(msg) from error
        if ended:
            msg = f"The editor ended with {ended}, so nothing is changed."
            raise Refusal(msg)
        return path.read_bytes()
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


@contextmanager
def interrupts(handler: Handler) -> Generator[None]:
    """Let Ctrl-C mean something else for a while."""
    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:
        # Not in the main thread, where no signal arrives anyway.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def following(what: str, total: int | None) -> Generator[Callable[[int], None]]:
    """Something to call with the number that is done."""
    to = console(to_stderr=True)
    if not to.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=to, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
