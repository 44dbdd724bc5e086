"""Dead letters: in rows, in groups, one in full, and what a replay or a purge would be about or was."""

from collections.abc import Sequence

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.cli.blocks import Block, Body, Cell, Facts, Grid, Quoted, Said
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter, ErrorGroup, Replay

EMPTY = "No dead letter matches."


def letter_grid(letters: Sequence[DeadLetter]) -> Grid:
    """A row for each dead letter."""
    columns = ("id", "queue", "failed", "reason", "error", "message", "attempts", "key", "body")
    rows = [
        (
            str(each.id),
            each.queue,
            each.failed_at,
            each.failure_reason,
            each.error_type,
            _glance(each.error_message),
            each.attempts_count,
            each.key,
            shown.glance(each.payload, 40),
        )
        for each in letters
    ]
    return Grid(columns, rows, empty=EMPTY)


def _glance(text: str | None) -> str | None:
    return None if text is None else shown.glance(text.encode(errors="replace"), 50)


def error_grid(groups: Sequence[ErrorGroup], title: str = "") -> Grid:
    """A row for each way in which dead letters failed alike."""
    columns = ("count", "queue", "reason", "error", "first", "last")
    rows = [
        (each.count, each.queue, each.reason, each.error_type, each.first_failed_at, each.last_failed_at)
        for each in groups
    ]
    return Grid(columns, rows, title, EMPTY)


def letter_view(letter: DeadLetter, *, is_full: bool) -> list[Block]:
    """One dead letter with everything that was kept."""
    pairs: list[tuple[str, Cell]] = [
        ("dead letter", str(letter.id)),
        ("was message", str(letter.original_id)),
        ("message id", str(letter.message_id)),
        ("queue", letter.queue),
        ("key", letter.key),
        ("priority", letter.priority),
        ("timer", letter.timer_id),
        ("attempts", letter.attempts_count),
        ("deliveries", letter.deliveries_count),
        ("created", letter.created_at),
        ("first attempt", letter.first_attempt_at),
        ("last attempt", letter.last_attempt_at),
        ("failed", letter.failed_at),
        ("reason", letter.failure_reason),
        ("error", letter.error_type),
        ("error message", letter.error_message or letter.last_exception),
    ]
    blocks: list[Block] = [Facts([pair for pair in pairs if pair[1] is not None])]
    if letter.traceback:
        blocks.append(Quoted(letter.traceback, "traceback"))
    if letter.headers:
        blocks.append(Quoted(shown.mapping(letter.headers), "headers"))
    return [*blocks, Body(letter.payload, is_full=is_full)]


def plan_view(groups: Sequence[ErrorGroup], title: str) -> list[Block]:
    """What would happen to how many."""
    return [error_grid(groups, title)]


def replay_view(replay: Replay, *, is_interrupted: bool) -> list[Block]:
    """What a replay has done."""
    at_least = "at least " if is_interrupted else ""
    said = f"{at_least}{shown.counted(replay.replayed, 'dead letter')} went back, of {replay.selected:,}."
    blocks: list[Block] = [Said(("Interrupted: " if is_interrupted else "") + said, "plain")]
    if replay.conflicts:
        ids = " ".join(map(str, replay.conflicts[:20])) + (" …" if len(replay.conflicts) > 20 else "")
        number = shown.counted(len(replay.conflicts), "dead letter")
        said = f"{number} could not, because a message with that timer or id is there already: {ids}"
        blocks.append(Said(said, "warning"))
    return blocks


def purge_view(purged: int, *, is_interrupted: bool) -> list[Block]:
    """What a purge has done."""
    said = f"{'Interrupted: at least ' if is_interrupted else ''}{shown.counted(purged, 'dead letter')} deleted."
    return [Said(said)]
