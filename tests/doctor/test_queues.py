"""Messages that nobody takes, queues whose messages die, keys that wait behind these, and forgotten pauses."""

import pytest

from faststream_outbox.queue import OutboxClient, pause, paused
from tests.cases import case
from tests.doctor.clinic import Clinic

WORKER = "outbox 0a1b2c3d claim host/12"
HELD = {"more": ", acquired_token, acquired_at", "values": ", gen_random_uuid(), now()"}
LETTERS = (
    "insert into outbox_dlq (id, original_id, message_id, queue, payload, created_at, failed_at, failure_reason,"
    " error_type, key) select n, n, gen_random_uuid(), '{queue}', '', now(), {at}, 'rejected', 'ValueError', {key}"
    " from generate_series({first}, {last}) n"
)
DEFERRED = (
    "insert into outbox_log_deferred (consumer_group, uri, position, tick, slot, key, state, updated_at)"
    " values ('billing', 'orders', {position}, 1, 3, 'a', '{state}', now() - interval '1 hour')"
)


def old(queue: str = "orders", key: str = "null", more: str = "", values: str = "") -> str:
    """A message that is due for an hour."""
    times = "now() - interval '1 hour', now() - interval '1 hour'"
    columns = f"queue, payload, created_at, next_attempt_at, key{more}"
    return f"insert into outbox ({columns}) values ('{queue}', '', {times}, {key}{values})"


def letters(queue: str = "orders", at: str = "now()", first: int = 1, last: int = 1, key: str = "null") -> str:
    """Dead letters of messages with these ids."""
    return LETTERS.format(queue=queue, at=at, first=first, last=last, key=key)


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
    later = "insert into outbox (queue, payload, next_attempt_at) values ('later', '', now() + interval '1 hour')"
    clinic.execute(old("held", **HELD), old("stopped"), later)
    await pause(OutboxClient(clinic.engine, clinic.table), "stopped")
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
    clinic.execute(
        letters(last=120),
        letters("mails", first=1001, last=1050),
        letters("past", "now() - interval '2 hours'", 2001, 2200),
    )
    finding = await clinic.heals("dead_letters")
    assert (finding.facts["queue"], finding.facts["letters"]) == ("orders", 120)
    assert "rejected, ValueError" in finding.detail


async def test_key_behind_a_dead_letter_is_named_and_can_be_replayed(clinic: Clinic) -> None:
    clinic.execute(letters(key="'a'"), "select setval('outbox_id_seq', 1)", old(key="'a'"), old(key="'b'"))
    finding = await clinic.heals("held_keys")
    assert (finding.facts["key"], finding.facts["waiting"]) == ("a", 1)
    assert finding.facts["letters"] == [1]


async def test_key_that_goes_on_is_not_blamed(clinic: Clinic) -> None:
    clinic.execute(letters(key="'a'"))
    for why, waits in (
        ("nothing waits", "select 1"),
        ("young", "insert into outbox (queue, payload, key) values ('orders', '', 'a')"),
        ("in flight", old(key="'a'", **HELD)),
        (
            "later",
            "insert into outbox (queue, payload, key, next_attempt_at) values ('orders', '', 'a', now() + '1 h')",
        ),
    ):
        with case(why):
            clinic.execute("delete from outbox", waits)
            assert await clinic.found("held_keys") == []


async def test_retry_that_waits_behind_a_dead_letter_is_seen(clinic: Clinic) -> None:
    clinic.execute(letters(key="'a'"), "select setval('outbox_id_seq', 1)", old(key="'a'"))
    clinic.execute("update outbox set created_at = created_at - interval '1 hour'")
    assert len(await clinic.found("held_keys")) == 1


async def test_key_behind_a_parked_message_is_named_and_can_be_tried_again(clinic: Clinic) -> None:
    clinic.execute(DEFERRED.format(position=1, state="parked"), DEFERRED.format(position=2, state="deferred"))
    finding = await clinic.heals("parked_keys")
    assert (finding.facts["position"], finding.facts["waiting"]) == (1, 1)


async def test_key_that_is_tried_again_is_not_blamed(clinic: Clinic) -> None:
    for states in (["parked"], ["retry", "deferred"], ["parked", "retry", "deferred"]):
        waiting = [DEFERRED.format(position=place, state=state) for place, state in enumerate(states, start=1)]
        with case(states):
            clinic.execute("delete from outbox_log_deferred", *waiting)
            assert await clinic.found("parked_keys") == []
