"""A member as it is: what was handed to it, what it has passed over, and whether its places are of this log."""

from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.member import Member, Portion
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.leases import SlotLeases
from faststream_outbox._internal.log.sharing.slots import BEGINNING, Cursor, Group, Span
from faststream_outbox._internal.sql.log_rows import ReadMessage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
END = Cursor(2, 9)
GENERATION = 4


def row(position: int) -> ReadMessage:
    return ReadMessage(2, position, "orders/1", 3, None, b"", "{}", None, NOW, 1, 1, 0)


@pytest.fixture
def member() -> Member:
    """Holds all slots from the beginning on, and was handed three messages."""
    nothing = cast(Any, None)
    leases = SlotLeases(Group("g", "orders"), nothing, nothing, 15.0, nothing, uuid4())
    leases.spans = {0: Span(0, 255, BEGINNING, 1)}
    member = Member(leases.group, ReadOptions(), leases, "billing")
    member.generation = GENERATION
    rows = [row(position) for position in (1, 2, 9)]
    member.hand(Portion(rows, list(leases.spans.values()), BEGINNING, END, {2: NOW}, GENERATION))
    return member


def positions(member: Member, size: int) -> list[int] | None:
    batch = member.handed_batch(size)
    return None if batch is None else [delivery.position for delivery in batch.deliveries]


def test_what_was_handed_to_it_is_taken_once(member: Member) -> None:
    assert (positions(member, 10), positions(member, 10)) == ([1, 2, 9], None)


def test_what_is_too_much_for_one_batch_is_taken_by_and_by(member: Member) -> None:
    first = member.handed_batch(2)
    assert first is not None
    assert (first.end, [delivery.position for delivery in first.deliveries]) == (Cursor(2, 2), [1, 2])
    member.leases.spans[0] = member.leases.spans[0].at(first.end, NOW)
    assert positions(member, 2) == [9]


@pytest.mark.parametrize("change", ["epoch", "cursor", "generation"])
def test_what_was_handed_to_it_is_worth_nothing_once_it_stands_elsewhere(member: Member, change: str) -> None:
    span = member.leases.spans[0]
    match change:
        case "epoch":
            member.leases.spans[0] = Span(0, 255, BEGINNING, 2)
        case "cursor":
            member.leases.spans[0] = span.at(END, NOW)
        case _:
            member.reads_log(GENERATION + 1)
    assert positions(member, 10) is None


@pytest.mark.parametrize(
    ("made_at", "generation", "unwritten", "stands"),
    [(NOW, GENERATION, [END], END), (None, GENERATION, [], END), (NOW, GENERATION + 1, [], BEGINNING)],
    ids=["is to be written", "unless its tick is not there any more", "and is worth nothing on another log"],
)
def test_what_it_passes_over(
    member: Member, made_at: datetime | None, generation: int, unwritten: list[Cursor], stands: Cursor
) -> None:
    member.pass_over(list(member.leases.spans.values()), END, made_at)
    member.reads_log(generation)
    assert [span.cursor for span in member.unwritten_spans()] == unwritten
    assert member.leases.spans[0].cursor == stands


def test_messages_of_a_slot_whose_owner_died_need_a_note(member: Member) -> None:
    member.leases.crash_guard.need(0, 3, 1)
    assert member.needs_note(Delivery(row(1), "orders"))


def test_events_name_a_message_by_topic_subscriber_and_position(member: Member) -> None:
    assert member.named(Delivery(row(9), "orders")) == ("orders", "billing", 9, 1)
