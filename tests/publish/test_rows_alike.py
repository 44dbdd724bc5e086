"""Messages that differ in their bodies alone are written as the rows that they stand for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faststream_outbox._internal.envelope import Envelope, checked
from faststream_outbox._internal.publish import rows as module
from faststream_outbox._internal.publish.put import publish_rows, publish_rows_sync
from faststream_outbox._internal.publish.rows import Alike, checked_batch, hints_of, ids_of, insertion, portions
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from tests.cases import each
from tests.publish.conftest import Rows
from tests.publish.ways import SyncWay, Way

BODIES = [b"one", b"", b"three"]
FACTS: list[dict[str, Any]] = [
    {},
    {"headers": {"a": "ß"}, "key": "k", "priority": 3},
    {"activate_in": timedelta(seconds=5)},
    {"activate_at": datetime.now(UTC) + timedelta(hours=1)},
]


def both(facts: dict[str, Any], bodies: list[bytes] = BODIES) -> tuple[Alike, list[Any]]:
    """The same messages in both shapes."""
    row = checked(Envelope(queue="orders", body=b"", **facts))
    return Alike.of(row, bodies), [checked(Envelope(queue="orders", body=body, **facts)) for body in bodies]


@each("facts", FACTS)
@each("count", [1, 2, 3])
def test_they_read_and_are_inserted_like_rows(facts: dict[str, Any], count: int) -> None:
    alike, rows = both(facts, BODIES[:count])
    assert list(alike) == rows == list(checked_batch(alike))
    name, values = insertion(alike)
    expected_name, expected = insertion(rows)
    assert name == expected_name
    assert {**values, "message_ids": None} == {**expected, "message_ids": None}
    returned = [(number,) for number in range(count)]
    ids = ids_of(alike, returned)
    assert ids == ids_of(rows, returned)
    # Due by the clock, a message is due a moment sooner for who is asked a moment later.
    [hint], [known] = hints_of(alike, ids), hints_of(rows, ids)
    assert hint.due_in == pytest.approx(known.due_in, abs=60)
    assert (hint.queue, hint.count, hint.priorities, hint.keyed, hint.keyless, hint.later, hint.scan) == (
        (known.queue, known.count, known.priorities, known.keyed, known.keyless, known.later, known.scan)
    )


async def test_they_are_written_through_every_kind_of_session(
    way: Way, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    alike, _ = both(FACTS[1])
    await way.begin()
    if isinstance(way, SyncWay):
        ids = publish_rows_sync(way.session, way.table, alike)
    else:
        ids = await publish_rows(way.session, way.table, alike)
    await way.commit()
    written = [(row["id"], bytes(row["payload"]), row["headers"], row["key"], row["priority"]) for row in rows()]
    assert written == [(row_id, body, {"a": "ß"}, "k", 3) for row_id, body in zip(ids, BODIES, strict=True)]


def test_each_has_an_id_of_its_own() -> None:
    _, values = insertion(both({})[0])
    assert len(set(values["message_ids"])) == len(BODIES)


def test_portions_are_cut_where_those_of_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    alike, rows = both({"headers": {"a": "b"}}, [b"x" * size for size in (5, 50, 5, 5, 200, 1)])
    monkeypatch.setattr(module, "MOST_BYTES", 80)
    cut = [list(portion) for portion in portions(alike)]
    assert cut == [list(portion) for portion in portions(rows)]
    assert len(cut) > 2


def test_bodies_that_are_too_large_together_or_no_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alike, rows = both({})
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 7)
    for given in (alike, rows):
        with pytest.raises(InvalidMessage, match="8 bytes together"):
            checked_batch(given)
    with pytest.raises(InvalidMessageType, match="must be bytes"):
        Alike.of(alike.row, [b"one", "two"])
