"""Keys whose messages wait behind one that failed for good."""

import pytest

from tests.doctor.clinic import Clinic
from tests.doctor.test_queues import old

LETTER = (
    "insert into outbox_dlq (original_id, message_id, queue, payload, created_at, failure_reason, key)"
    " values ({id}, gen_random_uuid(), 'orders', '', now(), 'rejected', {key})"
)
DEFERRED = (
    "insert into outbox_log_deferred (consumer_group, uri, position, tick, slot, key, state, updated_at)"
    " values ('billing', 'orders', {position}, 1, 3, 'a', '{state}', now() - interval '1 hour')"
)


async def test_key_behind_a_dead_letter_is_named_and_can_be_replayed(clinic: Clinic) -> None:
    clinic.execute(LETTER.format(id=1, key="'a'"), "select setval('outbox_id_seq', 1)", old(key="'a'"), old(key="'b'"))
    finding = await clinic.heals("held_keys")
    assert (finding.facts["key"], finding.facts["waiting"]) == ("a", 1)
    assert finding.facts["letters"] == [1]


@pytest.mark.parametrize(
    "waits",
    [
        ["insert into outbox (queue, payload, key) values ('orders', '', 'a')"],
        [old(key="'a'", more=", acquired_token, acquired_at", values=", gen_random_uuid(), now()")],
        ["insert into outbox (queue, payload, key, next_attempt_at) values ('orders', '', 'a', now() + '1 h')"],
        [],
    ],
    ids=["young", "in flight", "later", "none"],
)
async def test_key_that_goes_on_is_not_blamed(waits: list[str], clinic: Clinic) -> None:
    clinic.execute(LETTER.format(id=1, key="'a'"), *waits)
    assert await clinic.found("held_keys") == []


async def test_retry_that_waits_behind_a_dead_letter_is_seen(clinic: Clinic) -> None:
    clinic.execute(LETTER.format(id=1, key="'a'"), "select setval('outbox_id_seq', 1)", old(key="'a'"))
    clinic.execute("update outbox set created_at = created_at - interval '1 hour'")
    assert len(await clinic.found("held_keys")) == 1


async def test_key_behind_a_parked_message_is_named_and_can_be_tried_again(clinic: Clinic) -> None:
    clinic.execute(DEFERRED.format(position=1, state="parked"), DEFERRED.format(position=2, state="deferred"))
    finding = await clinic.heals("parked_keys")
    assert (finding.facts["position"], finding.facts["waiting"]) == (1, 1)


@pytest.mark.parametrize("states", [["parked"], ["retry", "deferred"], ["parked", "retry", "deferred"]])
async def test_key_that_is_tried_again_is_not_blamed(states: list[str], clinic: Clinic) -> None:
    clinic.execute(*(DEFERRED.format(position=place, state=state) for place, state in enumerate(states, start=1)))
    assert await clinic.found("parked_keys") == []
