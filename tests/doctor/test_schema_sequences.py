"""Sequences that were not restored with their tables, repaired by what is printed."""

import pytest

from faststream_outbox import Envelope
from faststream_outbox._internal.doctor.schema import judge_ids
from faststream_outbox._internal.sql.doctor_rows import DrawnRow
from faststream_outbox.log import OutboxMessage
from faststream_outbox.publish import publish
from tests.doctor.clinic import Clinic


async def test_ids_that_would_be_drawn_again(clinic: Clinic) -> None:
    clinic.execute(
        "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 20)",
        "select setval('outbox_id_seq', 3)",
    )
    finding = await clinic.heals("ids")
    assert (finding.severity, finding.facts["drawn"], finding.facts["highest"]) == ("critical", 3, 20)
    async with clinic.engine.begin() as connection:
        await publish(connection, clinic.table, Envelope(queue="q", body=b""))


async def test_sequence_that_was_never_drawn_from(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (id, queue, payload) values (5, 'q', '')")
    assert (await clinic.heals("ids")).facts["drawn"] == 0


async def test_ids_of_dead_letters(clinic: Clinic) -> None:
    clinic.execute(
        "insert into outbox_dlq (id, original_id, message_id, queue, payload, created_at, failure_reason)"
        " values (7, 1, gen_random_uuid(), 'q', '', now(), 'rejected')"
    )
    await clinic.heals("dead_ids")


async def test_ids_that_no_sequence_reaches_do_not_count(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (id, queue, payload) values (9223372036854775807, 'q', '')")
    assert await clinic.found("ids") == []


async def test_positions_that_would_be_drawn_again(clinic: Clinic) -> None:
    log = clinic.log()
    async with clinic.engine.begin() as connection:
        await log.publish(connection, *(OutboxMessage("orders", number) for number in range(5)))
    await log.lag()
    assert await clinic.found("positions") == []
    clinic.execute("select setval('outbox_log_head_drawn_seq', 2)")
    finding = await clinic.heals("positions")
    assert (finding.facts["drawn"], finding.facts["highest"]) == (2, 5)
    async with clinic.engine.begin() as connection:
        assert (await log.publish(connection, OutboxMessage("orders", 6))).positions == (6,)
    await log.cleanup()


@pytest.mark.parametrize("may_read", [True, False])
def test_column_without_a_sequence_is_left_to_the_schema(may_read: bool) -> None:
    assert list(judge_ids("ids", [DrawnRow(None, may_read, None, 5)], "outbox", "me")) == []
