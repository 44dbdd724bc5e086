"""Groups that are gone, and pauses that were forgotten."""

import pytest

from faststream_outbox.log import OutboxMessage
from tests.doctor.clinic import Clinic


async def _group_behind(clinic: Clinic, name: str = "billing", uri: str = "") -> None:
    log = clinic.log()
    async with clinic.engine.begin() as connection:
        await log.publish(connection, *(OutboxMessage("orders", number) for number in range(5)))
        await log.seek(connection, "earliest", name, uri, create=True)
    await log.lag()
    await log.cleanup()


@pytest.mark.parametrize(("name", "uri"), [("billing", ""), ('it\'s "mine"', "orders")])
async def test_group_that_is_gone_is_named_and_can_be_deleted(name: str, uri: str, clinic: Clinic) -> None:
    await _group_behind(clinic, name, uri)
    assert await clinic.found("groups") == []
    clinic.execute("update outbox_log_offsets set updated_at = now() - interval '10 days'")
    finding = await clinic.heals("groups")
    assert finding.facts["messages"] == 5
    assert "10 days" in finding.title


async def test_group_that_has_read_everything_holds_nothing_back(clinic: Clinic) -> None:
    log = clinic.log()
    await _group_behind(clinic)
    async with clinic.engine.begin() as connection:
        await log.seek(connection, "latest", "billing")
    clinic.execute("update outbox_log_offsets set updated_at = now() - interval '10 days'")
    assert await clinic.found("groups") == []
    await log.cleanup()


async def test_pause_of_a_group_that_was_forgotten_can_be_ended(clinic: Clinic) -> None:
    log = clinic.log()
    await _group_behind(clinic)
    await log.groups.pause("billing")
    assert await clinic.found("paused_groups") == []
    clinic.execute("update outbox_log_offsets set paused_at = now() - interval '2 days' where paused_at is not null")
    finding = await clinic.heals("paused_groups")
    assert "2 days" in finding.title
    assert await log.groups.paused() == []
    await log.cleanup()
