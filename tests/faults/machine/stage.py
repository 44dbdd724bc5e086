"""What the machine plays on: queues, one topic, a stream, and the tables of a business beside those of the package.

`business` has a row for every message, written in its transaction: the truth about what must be handled. `effects` is
written by handlers in their own transaction, `seeks` by the operator in that of the seek. Both draw their numbers from
one sequence: a seek waits for the spans, so that its number stands where it belongs among the effects of its group.
Triggers keep what happens to messages: every arrival, every change of a lease, every change of a span. These tables are
logged on purpose: an unlogged one is empty after a crash of the server, and a standby does not have it. Everything here
is in the database that is broken, so that it tells the same story as the messages do: what was not committed is in
neither.
"""

from typing import LiteralString, cast

import psycopg
from sqlalchemy import MetaData, Table, create_engine

from faststream_outbox import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.log import LogTables, make_log_tables

LEASE_SECONDS = 3.0
"""Leases of messages and of slots."""

ORDERS = "orders"
"""Handled by workers: with keys and without, retried, and some poison."""
BULK = "bulk"
"""Handled by workers in batches, without keys."""
TIMERS = "timers"
"""Handled by workers, each when it is due."""
EXACT = "exact"
"""Handled by transactional workers, with an effect, and some publish to `ORDERS` in that transaction."""
REVIVED = "revived"
"""Handled by transactional workers; an operator replays its dead letters, some of which then work."""
OUTWARD = "outward"
"""Relayed to NATS."""
FACTS = "facts"
"""The topic."""
PLAIN_GROUP = "plain"
EXACT_GROUP = "exact"
OUT_GROUP = "out"
"""Relays the topic to NATS."""
SOUGHT_GROUP = "sought"
"""An operator puts it elsewhere: it reads messages again, or never."""

STREAM = "machine"
FROM_QUEUE, FROM_TOPIC = "machine.queue", "machine.topic"
"""Subjects in NATS."""

OF_PLAIN_GROUP, OF_EXACT_GROUP = f"{FACTS}/{PLAIN_GROUP}", f"{FACTS}/{EXACT_GROUP}"
OF_SOUGHT_GROUP = f"{FACTS}/{SOUGHT_GROUP}"
"""Places of runs and effects: the topic is handled once by each group."""
INBOX = "inbox"
"""The place of effects at the far end."""
MARK = "x-machine"
"""The header that has the message's id again."""
MOST_ATTEMPTS = 3
"""Attempts that poison gets."""

_BUSINESS = """
create table business (
    message_id uuid primary key, place text not null, key text, version int, poison boolean not null, due timestamptz,
    body text not null, parent uuid
);
create table versions (key text primary key, version int not null);
create table effects (
    seq bigserial primary key, place text not null, message_id uuid not null, key text, version int, pid int not null,
    tick bigint, position bigint
);
create index on effects (message_id);
create table seeks (
    seq bigint primary key default nextval('effects_seq_seq'), tick bigint not null, position bigint not null
);
create table arrivals (message_id uuid not null, place text not null, id bigint not null);
create table leases (
    seq bigserial primary key, at timestamptz not null default clock_timestamp(), id bigint not null,
    message_id uuid not null, queue text not null, key text, due timestamptz not null,
    old_token uuid, old_at timestamptz, new_token uuid, new_at timestamptz, is_gone boolean not null,
    who text not null default current_setting('application_name')
);
create table spans (
    seq bigserial primary key, at timestamptz not null default clock_timestamp(), consumer_group text not null,
    lo int not null, old_epoch bigint, new_epoch bigint, old_owner uuid, new_owner uuid, old_until timestamptz,
    old_tick bigint, old_position bigint, new_tick bigint, new_position bigint,
    who text not null default current_setting('application_name')
);
create function keep_arrival() returns trigger language plpgsql as $$
begin
    insert into arrivals values (new.message_id, new.queue, new.id);
    return null;
end $$;
create function keep_position() returns trigger language plpgsql as $$
begin
    insert into arrivals values (new.event_id, 'facts', new.position);
    return null;
end $$;
create function keep_lease() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into leases (id, message_id, queue, key, due, old_token, old_at, is_gone)
        values (old.id, old.message_id, old.queue, old.key, old.next_attempt_at, old.acquired_token, old.acquired_at,
                true);
    else
        insert into leases (id, message_id, queue, key, due, old_token, old_at, new_token, new_at, is_gone)
        values (old.id, old.message_id, old.queue, old.key, old.next_attempt_at, old.acquired_token, old.acquired_at,
                new.acquired_token, new.acquired_at, false);
    end if;
    return null;
end $$;
create function keep_span() returns trigger language plpgsql as $$
begin
    insert into spans (consumer_group, lo, old_epoch, new_epoch, old_owner, new_owner, old_until, old_tick,
                       old_position, new_tick, new_position)
    values (old.consumer_group, old.lo, old.epoch, new.epoch, old.owner, new.owner, old.until, old.tick, old.position,
            new.tick, new.position);
    return null;
end $$;
create trigger keep_arrival after insert on outbox for each row execute function keep_arrival();
create trigger keep_position after insert on outbox_log for each row execute function keep_position();
create trigger keep_lease after update or delete on outbox for each row execute function keep_lease();
create trigger keep_span after update on outbox_log_offsets for each row
    when (old.epoch <> new.epoch or old.owner is distinct from new.owner
          or (old.tick, old.position) <> (new.tick, new.position))
    execute function keep_span();
"""


class Tables:
    """The package's tables, on a MetaData of their own."""

    def __init__(self) -> None:
        self.metadata = MetaData()
        self.outbox: Table = make_outbox_table(self.metadata)
        self.dead: Table = make_dlq_table(self.metadata)
        self.log: LogTables = make_log_tables(self.metadata, "outbox_log")
        self.inbox: Table = make_inbox_table(self.metadata, "machine_inbox")


def set_up(dsn: str) -> None:
    """Create everything in an empty database."""
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        Tables().metadata.create_all(connection)
    engine.dispose()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(cast("LiteralString", _BUSINESS))
