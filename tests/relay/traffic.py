"""What fault tests of relays publish, and how much of it is not yet relayed."""

from sqlalchemy.ext.asyncio import AsyncSession

from tests.broker.topics.stage import Stage


async def publish_both(stage: Stage, first: int, count: int, keys: int) -> None:
    """So many messages of a queue, and as many of a topic."""
    numbers = range(first, first + count)
    names = [f"key-{number % keys}" for number in numbers]
    async with AsyncSession(stage.engine) as session, session.begin():
        for source, to in (("queue", {"queue": "orders"}), ("topic", {"topic": "orders"})):
            bodies = [{"source": source, "key": names[place], "n": number} for place, number in enumerate(numbers)]
            await stage.broker.publish_batch(*bodies, **to, keys=names, session=session)


async def left(stage: Stage) -> int:
    """How much is not yet relayed, of the queue and of the topic; all of it before the group has read."""
    await stage.outbox.client.sequencer.catch_up()
    (row,) = await stage.sql(
        f"select (select count(*) from {stage.table.name}) + (select count(*) from {stage.log_tables.log.name} l"
        f" where not exists (select 1 from {stage.log_tables.offsets.name} o where o.consumer_group = 'out'"
        f" and l.slot between o.lo and o.hi and o.position >= l.position))"
        f" + (select count(*) from {stage.log_tables.deferred.name}) as count"
    )
    return int(row["count"])
