"""Queues, groups and what is wrong with them, on one screen."""

from collections.abc import Sequence

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.cli.blocks import Block, Cell, Grid, Mark, Marked, Said
from faststream_outbox._internal.cli.problems import Problem
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.queues import QueueStatus

MARKS: dict[str, Mark] = {"ok": "good", "notice": "notice", "warning": "warning", "critical": "bad"}


def queue_grid(queues: Sequence[QueueStatus], title: str = "") -> Grid:
    """A row for each queue."""
    columns = ("queue", "ready", "oldest", "leased", "scheduled", "dead", "")
    return Grid(columns, [_queue(queue) for queue in queues], title, "No queue has messages, dead letters or a pause.")


def _queue(queue: QueueStatus) -> tuple[Cell, ...]:
    return (
        queue.queue,
        _number(queue.ready, queue),
        shown.age(queue.oldest_ready_seconds) if queue.ready else "-",
        _number(queue.leased, queue),
        _number(queue.scheduled, queue),
        Marked(f"{queue.dead:,}", "warning") if queue.dead else "0",
        Marked("paused", "notice") if queue.is_paused else "",
    )


def _number(number: int, queue: QueueStatus) -> str:
    return shown.count(number, is_estimate=queue.is_estimate and number > 0)


def group_grid(groups: Sequence[GroupStatus], title: str = "") -> Grid:
    """A row for each group."""
    columns = ("group", "uri", "unread", "behind", "members", "slots", "retrying", "deferred", "parked", "")
    return Grid(columns, [_group(group) for group in groups], title, "No group has read a topic yet.")


def _group(group: GroupStatus) -> tuple[Cell, ...]:
    return (
        group.group,
        group.uri,
        shown.count(group.messages, is_estimate=group.is_estimate),
        shown.age(group.seconds) if group.messages else "-",
        group.members,
        group.slots,
        group.retrying,
        group.deferred,
        Marked(shown.count(group.parked, is_estimate=group.has_more), "warning") if group.parked else "0",
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
