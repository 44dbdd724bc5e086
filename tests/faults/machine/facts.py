"""What the database and NATS hold at the end of a run: the other half of the proof, beside the history.

Rows are plain tuples with names, so that `test_checker` can make them up. `gather` reads them from a world that
stands still: all producers and readers have stopped.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, LiteralString, NamedTuple, TypeVar, cast

import nats
import psycopg

from tests.faults.machine.stage import OUT_GROUP, STREAM

Row = TypeVar("Row", bound=tuple[Any, ...])


class Business(NamedTuple):
    """A message whose transaction committed."""

    id: str
    place: str
    key: str | None = None
    version: int | None = None
    poison: bool = False
    due: float | None = None
    body: str = ""
    parent: str | None = None


class Arrival(NamedTuple):
    """A row of the outbox or of the log that was inserted, and committed."""

    id: str
    place: str
    times: int = 1
    """How often it came under the same number: a dead letter comes back under its own."""


class Left(NamedTuple):
    """A message that is still in the outbox."""

    id: str
    place: str
    token: str | None = None


class Letter(NamedTuple):
    """A dead letter, or a parked message of a group."""

    id: str
    place: str
    body: str
    mark: str | None
    reason: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


class Effect(NamedTuple):
    """A row that a handler wrote in the transaction that settled its message."""

    seq: int
    place: str
    id: str
    key: str | None
    version: int | None


class Stand(NamedTuple):
    """Where a message stands in the order of the topic, as the exact group found it."""

    id: str
    tick: int
    position: int


class Seek(NamedTuple):
    """A seek of `SOUGHT_GROUP`; `seq` counts on with those of effects."""

    seq: int
    tick: int
    position: int


class Lease(NamedTuple):
    """A change of a message's row: its lease before and after, or its end."""

    at: float
    row: int
    id: str
    place: str
    key: str | None
    due: float
    old_token: str | None
    old_at: float | None
    new_token: str | None
    new_at: float | None
    is_gone: bool
    who: str


class Span(NamedTuple):
    """A change of a group's span: its owner and its cursor before and after."""

    at: float
    group: str
    lo: int
    old_epoch: int
    new_epoch: int
    old_owner: str | None
    new_owner: str | None
    old_until: float | None
    old_cursor: tuple[int, int]
    new_cursor: tuple[int, int]
    who: str


class Sent(NamedTuple):
    """A message in the stream of NATS, in its order."""

    place: str
    id: str
    key: str | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known at the end. Times are seconds of the server's clock."""

    business: Sequence[Business] = ()
    arrivals: Sequence[Arrival] = ()
    left: Sequence[Left] = ()
    letters: Sequence[Letter] = ()
    effects: Sequence[Effect] = ()
    leases: Sequence[Lease] = ()
    spans: Sequence[Span] = ()
    owned: Sequence[str] = ()
    """Spans that somebody still owns."""
    connections: Sequence[str] = ()
    """Other connections to the database."""
    sent: Sequence[Sent] | None = None
    """None without NATS."""
    offset: float = 0.0
    """The server's clock less CLOCK_MONOTONIC, in seconds."""
    lease_seconds: float = 3.0
    deferred: Sequence[str] = field(default=())
    """Messages that a group has deferred and not parked."""
    stands: Sequence[Stand] = ()
    seeks: Sequence[Seek] = ()
    places: frozenset[str] | None = None
    """Where messages were to be handled in this run; None is everywhere."""


_QUESTIONS = {
    "business": "select message_id::text, place, key, version, poison, extract(epoch from due)::float8,"
    " case when poison then body else '' end,"
    " parent::text from business",
    "arrivals": "select message_id::text, place, count(*) from arrivals group by message_id, place, id",
    "left": "select message_id::text, queue, acquired_token::text from outbox where queue not like '$%'",
    "effects": "select seq, place, message_id::text, key, version from effects order by seq",
    "stands": "select message_id::text, tick, position from effects where place = 'facts/exact'"
    " union select l.event_id::text, d.tick, d.position from outbox_log_deferred d join outbox_log l using (position)"
    " where d.consumer_group = 'exact'",
    "seeks": "select seq, tick, position from seeks order by seq",
    "leases": "select extract(epoch from at)::float8, id, message_id::text, queue, key,"
    " extract(epoch from due)::float8, old_token::text, extract(epoch from old_at)::float8, new_token::text,"
    " extract(epoch from new_at)::float8, is_gone, who from leases order by seq",
}
_LETTERS = (
    "select message_id::text, queue, convert_from(payload, 'utf8'), headers->>'x-machine', failure_reason,"
    " error_type, error_message, traceback from outbox_dlq",
    "select l.event_id::text, split_part(d.uri, '/', 1) || '/' || d.consumer_group,"
    " coalesce(l.payload::text, convert_from(l.body, 'utf8')), l.metadata->>'x-machine', d.state, d.error_type,"
    " d.error_message, d.traceback from outbox_log_deferred d join outbox_log l using (position)"
    " where d.state = 'parked'",
)
_SPANS = (
    "select extract(epoch from at)::float8, consumer_group, lo, old_epoch, new_epoch, old_owner::text,"
    " new_owner::text, extract(epoch from old_until)::float8, old_tick, old_position, new_tick, new_position, who"
    " from spans order by seq"
)
_DEFERRED = (
    "select d.consumer_group || ' ' || coalesce(l.event_id::text, d.position::text)"
    " from outbox_log_deferred d left join outbox_log l using (position) where d.state <> 'parked'"
)
_OWNED = "select consumer_group || ' ' || lo || ' ' || owner from outbox_log_offsets where owner is not null"
_CONNECTIONS = (
    "select application_name || ': ' || state || ': ' || left(query, 80) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
)
_SAMPLES = 20


def _ask(connection: psycopg.Connection[Any], question: str) -> list[tuple[Any, ...]]:
    return connection.execute(cast("LiteralString", question)).fetchall()


def offset(connection: psycopg.Connection[Any]) -> float:
    """The server's clock less ours, by the quickest of some answers."""
    found: list[tuple[float, float]] = []
    for _ in range(_SAMPLES):
        before = time.monotonic()
        ((now,),) = _ask(connection, "select extract(epoch from clock_timestamp())::float8")
        after = time.monotonic()
        found.append((after - before, now - (before + after) / 2))
    return min(found)[1]


def gather(
    dsn: str, lease_seconds: float, sent: Sequence[Sent] | None = None, places: frozenset[str] | None = None
) -> Facts:
    """Read everything, on a connection past all proxies."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows: dict[str, Any] = {
            name: [_ROWS[name](*row) for row in _ask(connection, question)] for name, question in _QUESTIONS.items()
        }
        letters = [Letter(*row) for question in _LETTERS for row in _ask(connection, question)]
        spans = [
            Span(*row[:8], (row[8], row[9]), (row[10], row[11]), row[12])  # type: ignore[arg-type]
            for row in _ask(connection, _SPANS)
        ]
        return Facts(
            **rows,
            letters=letters,
            spans=spans,
            owned=[name for (name,) in _ask(connection, _OWNED)],
            deferred=[name for (name,) in _ask(connection, _DEFERRED)],
            connections=[name for (name,) in _ask(connection, _CONNECTIONS)],
            sent=sent,
            offset=offset(connection),
            lease_seconds=lease_seconds,
            places=places,
        )


_ROWS: dict[str, type[Any]] = {
    "business": Business,
    "arrivals": Arrival,
    "left": Left,
    "letters": Letter,
    "effects": Effect,
    "leases": Lease,
    "stands": Stand,
    "seeks": Seek,
    "sent": Sent,
}


def save(facts: Facts, file: Path) -> None:
    """Keep them beside the histories."""
    values = {each.name: getattr(facts, each.name) for each in fields(facts)}
    values["places"] = None if facts.places is None else sorted(facts.places)
    file.write_text(json.dumps(values), encoding="utf-8")


def load(file: Path) -> Facts:
    """What `save` kept."""
    values = json.loads(file.read_text(encoding="utf-8"))
    # Words that come again are kept once.
    words: dict[str, str] = {}
    for name, row in _ROWS.items():
        if values[name] is not None:
            values[name] = [
                row(*(words.setdefault(one, one) if type(one) is str else one for one in each)) for each in values[name]
            ]
    spans = [Span(*each[:8], tuple(each[8]), tuple(each[9]), each[10]) for each in values["spans"]]
    places = values["places"]
    return Facts(**{**values, "spans": spans, "places": None if places is None else frozenset(places)})


async def in_stream(url: str) -> list[Sent]:
    """What NATS has kept, in its order."""
    client = await nats.connect(url)
    try:
        context = client.jetstream()
        if (await context.stream_info(STREAM)).state.messages == 0:
            return []
        reading = await context.subscribe("machine.>", ordered_consumer=True)
        found: list[Sent] = []
        while True:
            try:
                message = await reading.next_msg(timeout=2.0)
            except TimeoutError:
                return found
            body = json.loads(message.data)
            place = f"{body['place']}/{OUT_GROUP}"
            found.append(Sent(place, body["id"], body["key"], body["version"]))
            if message.metadata.num_pending == 0:
                return found
    finally:
        await client.close()
