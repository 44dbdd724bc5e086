"""Progress of what takes long, on the standard error and only at a terminal: a script gets the answer alone.

Used by commands that replay, purge and clean.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from faststream_outbox._internal.cli.printing import console


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
