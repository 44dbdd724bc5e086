"""What one transaction did after another is delivered after it, also where it began to write before it."""

from tests.log.opened import Collector, drain
from tests.log.rig import LogRig


async def test_the_version_that_came_later_is_delivered_later_although_its_transaction_wrote_first(rig: LogRig) -> None:
    early = await rig.writer()
    # Any write gives it its transaction id, before the other one has its own.
    await early.xid()
    await rig.put("k", "version 1")
    await early.publish("k", "version 2")
    await early.commit()
    collector = Collector()
    await drain(rig.outbox, collector, "g")
    assert collector.payloads == ["version 1", "version 2"]
    first, second = (message.transaction_id or 0 for message in collector.messages)
    assert first > second, "the order of transactions was not what this is about"
