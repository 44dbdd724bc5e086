"""`status`, `queues`, `workers`: how things stand, without changing anything.

The last lines of `status` say what is wrong with queues and groups, from their numbers alone: a script says itself what
it wants to fail on, and the doctor looks further. Added to the application by `app`; other commands show groups and
processes with the tables of this one.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Block, Cell, Exit, Grid, Mark, Marked, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import parse_length
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.processes import Process
from faststream_outbox._internal.overview.queues import OLD_SECONDS, QueueStatus
from faststream_outbox._internal.queue.pause import check_known
from faststream_outbox._internal.text import age, count, counted, moment


@dataclass(frozen=True, slots=True)
class Limits:
    """What a script fails on; None is nothing."""

    age: timedelta | None = None
    dead: int | None = None
    parked: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to look at; critical is beyond a limit that was given."""

    severity: Literal["notice", "warning", "critical"]
    subject: str
    detail: str


def problems(queues: Sequence[QueueStatus], groups: Sequence[GroupStatus], limits: Limits) -> list[Problem]:
    """Everything that is wrong, the worst first."""
    found = [problem for queue in queues for problem in _of_queue(queue, limits)]
    found += [problem for group in groups for problem in _of_group(group, limits)]
    return sorted(found, key=lambda problem: ("critical", "warning", "notice").index(problem.severity))


def _of_queue(queue: QueueStatus, limits: Limits) -> Iterator[Problem]:
    subject = f"queue {queue.queue!r}"
    if queue.is_paused:
        yield Problem("notice", subject, f"paused, with {counted(queue.ready, 'message')} ready")
    is_over = limits.age is not None and queue.oldest_ready_seconds > limits.age.total_seconds()
    if is_over or (queue.oldest_ready_seconds > OLD_SECONDS and not queue.is_paused):
        detail = f"the oldest message is due for {age(queue.oldest_ready_seconds)}"
        yield Problem("critical" if is_over else "warning", subject, detail)
    is_over = limits.dead is not None and queue.dead > limits.dead
    if queue.dead or is_over:
        yield Problem("critical" if is_over else "warning", subject, counted(queue.dead, "dead letter"))


def _of_group(group: GroupStatus, limits: Limits) -> Iterator[Problem]:
    subject = f"group {group.group!r}" + (f" of {group.uri!r}" if group.uri else "")
    is_over = limits.age is not None and group.messages > 0 and group.seconds > limits.age.total_seconds()
    behind = f"{count(group.messages, is_estimate=group.is_estimate)} unread, {age(group.seconds)} behind"
    if group.paused_since is not None:
        yield Problem("critical" if is_over else "notice", subject, f"paused since {moment(group.paused_since)}")
    elif group.messages and not group.members:
        yield Problem("critical" if is_over else "warning", subject, f"nobody reads it: {behind}")
    elif is_over or (group.messages and group.seconds > OLD_SECONDS):
        yield Problem("critical" if is_over else "warning", subject, behind)
    is_over = limits.parked is not None and group.parked > limits.parked
    if group.parked or is_over:
        yield Problem("critical" if is_over else "warning", subject, f"{group.parked:,} parked")


MARKS: dict[str, Mark] = {"ok": "good", "notice": "notice", "warning": "warning", "critical": "bad"}


def queue_grid(queues: Sequence[QueueStatus], title: str = "") -> Grid:
    """A row for each queue."""
    columns = ("queue", "ready", "oldest", "leased", "scheduled", "dead", "")
    return Grid(columns, [_queue(queue) for queue in queues], title, "No queue has messages, dead letters or a pause.")


def _queue(queue: QueueStatus) -> tuple[Cell, ...]:
    return (
        queue.queue,
        _number(queue.ready, queue),
        age(queue.oldest_ready_seconds) if queue.ready else "-",
        _number(queue.leased, queue),
        _number(queue.scheduled, queue),
        Marked(f"{queue.dead:,}", "warning") if queue.dead else "0",
        Marked("paused", "notice") if queue.is_paused else "",
    )


def _number(number: int, queue: QueueStatus) -> str:
    return count(number, is_estimate=queue.is_estimate and number > 0)


def group_grid(groups: Sequence[GroupStatus], title: str = "") -> Grid:
    """A row for each group."""
    columns = ("group", "uri", "unread", "behind", "members", "slots", "retrying", "deferred", "parked", "")
    return Grid(columns, [_group(group) for group in groups], title, "No group has read a topic yet.")


def _group(group: GroupStatus) -> tuple[Cell, ...]:
    return (
        group.group,
        group.uri,
        count(group.messages, is_estimate=group.is_estimate),
        age(group.seconds) if group.messages else "-",
        group.members,
        group.slots,
        group.retrying,
        group.deferred,
        Marked(count(group.parked, is_estimate=group.has_more), "warning") if group.parked else "0",
        Marked("paused", "notice") if group.paused_since is not None else "",
    )


def status_blocks(
    queues: Sequence[QueueStatus] | None, groups: Sequence[GroupStatus] | None, problems: Sequence[Problem]
) -> list[Block]:
    """Everything on one screen; None is what there are no tables for."""
    blocks: list[Block] = []
    if queues is not None:
        blocks.append(queue_grid(queues, "Queues"))
    if groups is not None:
        blocks.append(group_grid(groups, "Groups"))
    if not problems:
        return [*blocks, Said("Nothing is wrong, as far as these numbers say.", "good")]
    rows = [(Marked(each.severity, MARKS[each.severity]), each.subject, each.detail) for each in problems]
    return [*blocks, Grid(("", "where", "what"), rows, "What is wrong")]


def process_grid(processes: Sequence[Process]) -> Grid:
    """A row for each process."""
    columns = ("worker", "application", "host", "pid", "roles", "leases", "slots", "since", "backends")
    rows = [
        (
            each.worker_id,
            each.application,
            each.host,
            str(each.pid),
            ", ".join(each.roles),
            each.leases,
            each.slots,
            each.connected_since,
            " ".join(map(str, each.backend_pids)),
        )
        for each in processes
    ]
    return Grid(columns, rows, empty="Nobody of ours is connected: no process claims, settles or reads.")


def process_named(process: Process | None, worker_id: str | None) -> str | None:
    """Who it is, in a few words."""
    if process is not None:
        return f"{process.worker_id} (pid {process.pid} on {process.host})"
    return None if worker_id is None else f"{worker_id} (not connected any more)"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(status)
    command(app)(queues)
    command(app)(workers)


async def status(
    here: Here,
    fail_on_age: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_length, metavar="TIME", help="Exit with 1 if something is due, or unread, for longer."
        ),
    ] = None,
    fail_on_dead: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if a queue has more dead letters.")
    ] = None,
    fail_on_parked: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if a group has more parked messages.")
    ] = None,
) -> Answer:
    """Queues, groups, and what is wrong, on one screen."""
    overview = here.overview
    of_queues = None if here.tables.table is None else await overview.queues()
    of_groups = None if here.tables.log_tables is None else await overview.groups()
    wrong = problems(of_queues or (), of_groups or (), Limits(fail_on_age, fail_on_dead, fail_on_parked))
    is_over = any(problem.severity == "critical" for problem in wrong)
    data = {"queues": of_queues or [], "groups": of_groups or [], "problems": wrong}
    return Answer(data, status_blocks(of_queues, of_groups, wrong), Exit.WRONG if is_over else Exit.FINE)


async def queues(here: Here, queue: Annotated[str | None, typer.Argument(help="Only this one.")] = None) -> Answer:
    """Queues: how many messages are ready, leased, scheduled and dead, and how old the oldest is."""
    _ = here.table
    found = await here.overview.queues(queue)
    if queue is not None and not found:
        await check_known(here.client, queue)
    return Answer(found, [queue_grid(found)])


async def workers(here: Here) -> Answer:
    """Processes that work on these tables, by the connections that the server knows; this one left out."""
    ours = os.getpid()
    found = [each for each in await here.overview.processes() if (each.pid, each.roles) != (ours, ("overview",))]
    return Answer(found, [process_grid(found)])
