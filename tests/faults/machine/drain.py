"""The end of a run: wait until everything that was committed is handled, as long as it gets on."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg

from tests.faults.machine.history import DRAINED, STARTED, STUCK, History, parse
from tests.faults.machine.part import (
    CONSUMER,
    MEMBER,
    RELAY,
    REVIVED_WORKER,
    SOUGHT_MEMBER,
    TRANSACTIONAL_MEMBER,
    TRANSACTIONAL_WORKER,
    WORKER,
)
from tests.faults.machine.runs import FINAL
from tests.faults.machine.stage import (
    BULK,
    EXACT,
    EXACT_GROUP,
    FACTS,
    INBOX,
    OF_EXACT_GROUP,
    OF_PLAIN_GROUP,
    ORDERS,
    OUT_GROUP,
    OUTWARD,
    PLAIN_GROUP,
    REVIVED,
    SOUGHT_GROUP,
    TIMERS,
)

STANDSTILL = 60.0
LOOK_SECONDS = 1.0

_IN_QUEUES = "select count(*) from outbox where queue = any(%s::text[])"
_WITHOUT_EFFECT = """
select count(*) from business b
where b.place = %(of)s and not exists (
    select from effects e where e.place = %(place)s and e.message_id = b.message_id
) and not exists (
    select from outbox_log_deferred d join outbox_log l using (position)
    where d.consumer_group = %(group)s and d.state = 'parked' and l.event_id = b.message_id
)
"""
_FACTS = "select message_id::text from business where place = %s"
_BEHIND = """
select count(*) from outbox_log_offsets o
where o.consumer_group = %s
  and (o.tick < (select max(tick) from outbox_log_ticks) or exists (
        select from outbox_log_deferred d where d.consumer_group = o.consumer_group and d.state <> 'parked'))
"""
# Half of a lease without a renewal: its member was killed, and nobody has taken over yet.
_ABANDONED = """
select count(*) from outbox_log_offsets o
where o.consumer_group = %s and o.owner is not null and o.until < clock_timestamp() + (o.until - o.updated_at) / 2
"""

QUEUES = {WORKER: (ORDERS, BULK, TIMERS), TRANSACTIONAL_WORKER: (EXACT,), REVIVED_WORKER: (REVIVED,), RELAY: (OUTWARD,)}
GROUPS = {MEMBER: PLAIN_GROUP, TRANSACTIONAL_MEMBER: EXACT_GROUP, RELAY: OUT_GROUP, SOUGHT_MEMBER: SOUGHT_GROUP}
"""The last one is asked for when the others have everything: its effects do not say whether one is missing."""


def places_of(roles: Sequence[str], *, has_nats: bool) -> frozenset[str]:
    """Where messages must have come to, with these roles."""
    places = {queue for role in roles for queue in QUEUES.get(role, ())}
    places |= {f"{FACTS}/{GROUPS[role]}" for role in roles if role in GROUPS}
    if has_nats:
        places |= {f"{OUTWARD}/{OUT_GROUP}"}
    if CONSUMER in roles:
        places |= {f"{INBOX}/{FACTS}", f"{INBOX}/{OUTWARD}"}
    return frozenset(places)


class Handled:
    """Messages that members of the plain group say that they have handled; reads on where it stopped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._begun: dict[tuple[int, int], str] = {}
        self.ids: set[str] = set()

    def look(self) -> set[str]:
        """All of them by now."""
        for path in self._directory.glob(f"{MEMBER}-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for event in parse(line for line in whole.decode().splitlines() if '"run"' in line):
                run = (event.pid, event.data["run"])
                if event.kind == STARTED:
                    self._begun[run] = event.data["id"]
                elif event.data["outcome"] in FINAL and run in self._begun:
                    self.ids.add(self._begun.pop(run))
        return self.ids


def left(dsn: str, handled: Handled, roles: Sequence[str]) -> dict[str, int]:
    """What is not handled yet, by place."""
    found: dict[str, int] = {}
    queues = [queue for role in roles for queue in QUEUES.get(role, ())]
    with psycopg.connect(dsn, autocommit=True) as connection:

        def count(question: str, values: object) -> int:
            row = connection.execute(question.encode(), values).fetchone()  # type: ignore[arg-type]
            assert row is not None
            return int(row[0])

        found["queues"] = count(_IN_QUEUES, [queues])
        for role in roles:
            if role in GROUPS:
                found[GROUPS[role]] = count(_BEHIND, [GROUPS[role]])
                found[f"spans of {GROUPS[role]}"] = count(_ABANDONED, [GROUPS[role]])
        if TRANSACTIONAL_MEMBER in roles:
            values = {"of": FACTS, "place": OF_EXACT_GROUP, "group": EXACT_GROUP}
            found[OF_EXACT_GROUP] = count(_WITHOUT_EFFECT, values)
        if CONSUMER in roles:
            for place in (FACTS, OUTWARD):
                values = {"of": place, "place": f"{INBOX}/{place}", "group": ""}
                found[f"{INBOX}/{place}"] = count(_WITHOUT_EFFECT, values)
        if MEMBER in roles:
            wanted = {row[0] for row in connection.execute(_FACTS.encode(), [FACTS]).fetchall()}
            found[OF_PLAIN_GROUP] = len(wanted - handled.look())
    return {name: number for name, number in found.items() if number}


async def drain(dsn: Callable[[], str], history: History, roles: Sequence[str], standstill: float = STANDSTILL) -> None:
    """Wait until nothing is left; note what is where nothing gets on any more."""
    loop = asyncio.get_running_loop()
    handled = Handled(history.directory)
    fewest: int | None = None
    moved_at = loop.time()
    while True:
        try:
            found = await asyncio.to_thread(left, dsn(), handled, roles)
        except psycopg.Error:
            # What a strike has done to the server may still last.
            if loop.time() - moved_at > standstill:
                raise
            await asyncio.sleep(LOOK_SECONDS)
            continue
        total = sum(found.values())
        if total == 0:
            history.write(DRAINED)
            return
        if fewest is None or total < fewest:
            fewest, moved_at = total, loop.time()
        elif loop.time() - moved_at > standstill:
            for place, number in found.items():
                history.write(STUCK, what=place, left=number)
            return
        await asyncio.sleep(LOOK_SECONDS)
