"""The same questions to the tables in memory and to PostgreSQL, and their answers in one language.

Messages are known by the number in their message id, because the two number their rows differently;
moments are seconds from now, told apart only when they are some seconds apart. Time passes in
PostgreSQL by moving every moment of the table into the past. Used by `test_contract`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.memory.queues import MemoryQueues
from faststream_outbox._internal.schema.names import PAUSED, Names
from faststream_outbox._internal.sql.statements import statements
from tests.memory.statement_values import TTL, heads, message, several

FILES = {
    "publish": (
        "publish_one", "publish_alike", "publish_many", "publish_timers", "publish_new_timers", "cancel_timer",
        "unprocessed", "unprocessed_of_queue",
    ),
    "claim": ("claim", "find_lanes", "claim_found", "exists", "set_apart"),
    "keys": ("claim_keys", "overtaken", "find_keys", "head_of_key"),
    "scan": ("survey", "claimable", "claimable_keys", "walk_keys", "next_due"),
    "settle": (
        "settle_done", "settle_within", "settle_retry", "settle_release", "settle_dead", "settle_apart", "renew",
        "remains", "lock",
    ),
    "control": ("pause", "resume", "paused", "queues", "known_queue"),
    "dead": ("count_dead", "group_dead", "group_selected"),
}  # fmt: skip
FILE_OF = {name: file for file, names in FILES.items() for name in names}

# Where ids stand in the rows of a statement, where headers do, and whether the order of its rows means something.
IDS = {"find_keys": 4, "claimable": 1} | dict.fromkeys((
    "find_lanes", "survey", "claimable_keys", "walk_keys", "next_due", "overtaken", "paused", "pause", "resume",
    "queues", "known_queue", "count_dead", "group_dead", "group_selected", "cancel_timer",
))  # fmt: skip
ALSO_IDS = {"claim_keys": (15, 16), "claimable_keys": (4,), "walk_keys": (3,)}
ORDERED = {
    "publish_one", "publish_alike", "publish_many", "group_dead", "group_selected", "unprocessed",
    "unprocessed_of_queue", "find_keys", "walk_keys", "paused",
}  # fmt: skip
HEADERS = {"claim", "claim_found", "claim_keys", "unprocessed", "unprocessed_of_queue"}
ENDLESS = datetime(9998, 1, 1, tzinfo=UTC)
TOLERANCE = 3.0


class Moment:
    """Seconds from now; equal to another that is nearly the same."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and abs(self.seconds - other.seconds) < TOLERANCE

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "a moment"


class Two:
    """PostgreSQL and the tables in memory, side by side."""

    def __init__(self, engine: AsyncEngine, table: Table, dead: Table) -> None:
        self.engine = engine
        self.names = Names.of(table, dead)
        self.connection = DedicatedConnection(engine)
        self.memory = MemoryQueues()
        self._server_ids: dict[int, int] = {}
        self._memory_ids: dict[int, int] = {}

    async def clear(self) -> None:
        """Forget everything."""
        self.memory = MemoryQueues()
        self._server_ids.clear()
        self._memory_ids.clear()
        await self._sql(f"truncate {self.names.table}, {self.names.dead}")

    async def advance(self, seconds: float) -> None:
        """Let time pass on both sides."""
        self.memory.advance(timedelta(seconds=seconds))
        moments = ("created_at", "next_attempt_at", "first_attempt_at", "last_attempt_at", "acquired_at")
        past = ", ".join(f"{column} = {column} - make_interval(secs => {seconds})" for column in moments)
        await self._sql(f"update {self.names.table} set {past}")

    async def ask(self, name: str, **values: Any) -> Any:
        """Ask both, compare, and give the answer. `ids` are numbers of messages, moments seconds from now."""
        server = await self._of_server(name, values)
        memory = self._of_memory(name, values)
        await self._learn()
        ours, theirs = self._report(name, memory, self._memory_ids), self._report(name, server, self._server_ids)
        assert ours == theirs, f"{name}: memory answers {ours}, PostgreSQL {theirs}"
        return theirs

    async def compare(self) -> None:
        """Both tables hold the same messages in the same state, and the same dead letters."""
        await self.ask("unprocessed", limit=1000)
        await self.ask("paused")
        rows = await self._sql(f"select * from {self.names.dead} order by original_id")
        server = sorted((self._dead(dict(row)) for row in rows), key=repr)
        assert sorted((self._dead(row) for row in self.memory.dlq_rows), key=repr) == server

    async def _of_server(self, name: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        given = self._given(values, self._server_ids, datetime.now(UTC))
        return await self.connection.fetch(statements(FILE_OF[name], self.names)[name], given)

    def _of_memory(self, name: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        return self.memory.answer(name, self._given(values, self._memory_ids, self.memory.now()))

    def _given(self, values: Mapping[str, Any], ids: Mapping[int, int], now: datetime) -> dict[str, Any]:
        given = dict(values)
        for numbers in ("ids", "firsts"):
            if given.get(numbers) is not None:
                given[numbers] = [ids.get(number, -number) for number in given[numbers]]
        if isinstance(given.get("due_at"), float):
            given["due_at"] = now + timedelta(seconds=given["due_at"])
        if "id" in given:
            given["id"] = ids.get(given["id"], -given["id"])
        for moments in ("due_ats", "floor_ats", "from_ats", "to_ats"):
            if moments in given:
                given[moments] = [None if at is None else now + timedelta(seconds=at) for at in given[moments]]
        return given

    async def _learn(self) -> None:
        rows = await self._sql(f"select id, message_id from {self.names.table} where queue <> '{PAUSED}'")
        self._server_ids |= {row["message_id"].int: row["id"] for row in rows}
        self._memory_ids |= {row.message_id.int: row.id for row in self.memory.rows if row.queue != PAUSED}

    def _report(self, name: str, rows: Sequence[Sequence[Any]], ids: Mapping[int, int]) -> list[Any]:
        numbers = {number: label for label, number in ids.items()}
        place = IDS.get(name, 0)
        reported = []
        for row in rows:
            one = list(row)
            if place is not None and one[place] is not None:
                one[place] = numbers[one[place]]
            if name in HEADERS and one[3] is not None:
                one[3] = json.loads(one[3])
            for also in ALSO_IDS.get(name, ()):
                one[also] = one[also] and numbers[one[also]]
            if name == "next_due":
                one[3] = Moment(one[3])
            if name in ("pause", "resume"):
                one = ["a row"]
            reported.append([self._moment(value, ids is self._memory_ids) for value in one])
        return reported if name in ORDERED else sorted(reported, key=repr)

    def _moment(self, value: Any, is_memory: bool) -> Any:
        if not isinstance(value, datetime):
            return value
        if value > ENDLESS:
            return value
        now = self.memory.now() if is_memory else datetime.now(UTC)
        return Moment((value - now).total_seconds())

    def _dead(self, row: Mapping[str, Any]) -> dict[str, Any]:
        # Times of dead letters are facts about the past, which does not move with the table's clock.
        return {
            name: value
            for name, value in row.items()
            if name not in ("id", "original_id") and not isinstance(value, datetime)
        }

    async def _sql(self, statement: str) -> Sequence[Any]:
        async with self.engine.begin() as connection:
            result = await connection.execute(text(statement))
            return result.mappings().all() if result.returns_rows else []


async def publish(two: Two, *numbers: int, **fields: Any) -> None:
    """Publish messages to both, with these fields."""
    await two.ask("publish_many", **several(*(message(number, **fields) for number in numbers)))


async def look_at_keys(two: Two, *, held_by_dead: bool = True) -> None:
    """Ask both for the keys that can be claimed, in each of the ways."""
    some = heads(("orders", 0), ("other", 0), ("orders", 3), held_by_dead=held_by_dead)
    await two.ask("walk_keys", queue="orders", after="", keys=10, ttl=TTL, held_by_dead=held_by_dead, unheard=[])
    await two.ask("claimable_keys", **some)
