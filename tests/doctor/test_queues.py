"""Messages that nobody takes, queues whose messages die, and pauses that were forgotten."""

import pytest

from faststream_outbox.queue import OutboxClient, pause, paused
from tests.doctor.clinic import Clinic

WORKER = "outbox 0a1b2c3d claim host/12"
OLD = (
    "insert into outbox (queue, payload, created_at, next_attempt_at, key{more})"
    " values ('{queue}', '', {times}, {key}{values})"
)
TIMES = "now() - interval '1 hour', now() - interval '1 hour'"


def old(queue: str = "orders", key: str = "null", more: str = "", values: str = "") -> str:
    return OLD.format(queue=queue, times=TIMES, key=key, more=more, values=values)


@pytest.mark.parametrize("key", ["null", "'a'"])
async def test_message_that_nobody_takes_is_critical_where_no_worker_is_connected(key: str, clinic: Clinic) -> None:
    clinic.execute("insert into outbox (queue, payload) values ('young', '')", old(key=key))
    finding = await clinic.one("ready")
    assert (finding.severity, finding.facts["queue"]) == ("critical", "orders")
    assert "due for 1 hour" in finding.title
    with clinic.session(application_name=WORKER):
        assert (await clinic.one("ready")).severity == "warning"
    clinic.execute("delete from outbox")
    assert await clinic.found("ready") == []


async def test_messages_that_are_held_or_paused_or_later_are_not_waiting(clinic: Clinic) -> None:
    held = {"more": ", acquired_token, acquired_at", "values": ", gen_random_uuid(), now()"}
    clinic.execute(
        old("held", **held),
        old("stopped"),
        "insert into outbox (queue, payload, next_attempt_at) values ('later', '', now() + interval '1 hour')",
    )
    client = OutboxClient(clinic.engine, clinic.table)
    await pause(client, "stopped")
    assert await clinic.found("ready") == []


async def test_pause_that_was_forgotten_is_named_and_can_be_ended(clinic: Clinic) -> None:
    client = OutboxClient(clinic.engine, clinic.table)
    await pause(client, "it's", create=True)
    assert await clinic.found("paused_queues") == []
    clinic.execute("update outbox set acquired_at = now() - interval '3 days'", old("it''s"))
    finding = await clinic.heals("paused_queues")
    assert (finding.severity, finding.facts["waiting"]) == ("warning", 1)
    assert await paused(client) == []


async def test_pause_of_a_stranger_without_a_lease_is_none(clinic: Clinic) -> None:
    clinic.execute("insert into outbox (queue, timer_id, payload) values ('$paused', 'orders', '')")
    assert await clinic.found("paused_queues", pause_seconds=0.0) == []


async def test_messages_that_die_are_counted_and_can_be_replayed(clinic: Clinic) -> None:
    letter = (
        "insert into outbox_dlq"
        " (original_id, message_id, queue, payload, created_at, failed_at, failure_reason, error_type)"
        " select n, gen_random_uuid(), '{queue}', '', now(), {at}, 'rejected', 'ValueError'"
        " from generate_series({first}, {last}) n"
    )
    clinic.execute(
        letter.format(queue="orders", at="now()", first=1, last=120),
        letter.format(queue="mails", at="now()", first=1001, last=1050),
        letter.format(queue="past", at="now() - interval '2 hours'", first=2001, last=2200),
    )
    finding = await clinic.heals("dead_letters")
    assert (finding.facts["queue"], finding.facts["letters"]) == ("orders", 120)
    assert "rejected, ValueError" in finding.detail
