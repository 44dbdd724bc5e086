-- name: append
-- Inserts messages in the order given and returns their positions; a taken event_id is left out.
-- How far the log is sequenced comes with it: a number below that was drawn before, by a database that this is a copy of.
-- The xid is forced before the first number is drawn: a number's owner is always known to have had a smaller xid
-- than a transaction that began after the number was missed.
with x as materialized (
    select pg_current_xact_id()::text::bigint as xid
)
insert into {log} (position, uri, slot, payload, body, metadata, event_id, created_at, transaction_id)
select nextval('{sequence_name}'), m.uri, m.slot, m.payload::json, m.body, m.metadata::json, m.event_id,
       statement_timestamp(), x.xid
from x, unnest(:uris::text[], :slots::smallint[], :payloads::text[], :bodies::bytea[], :metadata::text[],
               :event_ids::uuid[]) with ordinality as m (uri, slot, payload, body, metadata, event_id, place)
order by m.place
on conflict (event_id) where event_id is not null do nothing
returning position, event_id, (select h.high from {head} h where h.one)

-- name: append_one
-- Inserts one message and returns its position, or nothing where its event_id is taken.
with x as materialized (
    select pg_current_xact_id()::text::bigint as xid
)
insert into {log} (position, uri, slot, payload, body, metadata, event_id, created_at, transaction_id)
select nextval('{sequence_name}'), :uri::text, :slot::smallint, :payload::text::json, :body::bytea,
       :metadata::text::json, :event_id::uuid, statement_timestamp(), x.xid
from x
on conflict (event_id) where event_id is not null do nothing
returning position, event_id, (select h.high from {head} h where h.one)

-- name: append_to_partitions
-- As append, where event ids are unique within a partition only.
with x as materialized (
    select pg_current_xact_id()::text::bigint as xid
)
insert into {log} (position, uri, slot, payload, body, metadata, event_id, created_at, transaction_id)
select nextval('{sequence_name}'), m.uri, m.slot, m.payload::json, m.body, m.metadata::json, m.event_id,
       statement_timestamp(), x.xid
from x, unnest(:uris::text[], :slots::smallint[], :payloads::text[], :bodies::bytea[], :metadata::text[],
               :event_ids::uuid[]) with ordinality as m (uri, slot, payload, body, metadata, event_id, place)
order by m.place
on conflict do nothing
returning position, event_id, (select h.high from {head} h where h.one)

-- name: append_whole
-- As append, all or nothing by itself: fails where anything would be left out. For whoever has no transaction open.
with x as materialized (
    select pg_current_xact_id()::text::bigint as xid
), made as (
    insert into {log} (position, uri, slot, payload, body, metadata, event_id, created_at, transaction_id)
    select nextval('{sequence_name}'), m.uri, m.slot, m.payload::json, m.body, m.metadata::json, m.event_id,
           statement_timestamp(), x.xid
    from x, unnest(:uris::text[], :slots::smallint[], :payloads::text[], :bodies::bytea[], :metadata::text[],
                   :event_ids::uuid[]) with ordinality as m (uri, slot, payload, body, metadata, event_id, place)
    order by m.place
    on conflict do nothing
    returning position, event_id
)
select m.position, m.event_id, (select h.high from {head} h where h.one),
       1 / (case when (select count(*) from made) = cardinality(:uris::text[]) then 1 else 0 end)
from made m
order by m.position

-- name: taken
-- Those of some event ids that are in the log.
select l.event_id from {log} l where l.event_id = any (:event_ids::uuid[])

-- name: withdraw
-- Takes back messages that the same transaction has written: nobody else has seen them.
delete from {log} l where l.position = any (:positions::bigint[]) returning l.position

-- name: lock_tables
-- Lets those who create tables of this log follow each other until they commit.
select pg_advisory_xact_lock(hashtextextended(:log::text, 1870))

-- name: lock_keys
-- Lets publishers of the same keys follow each other until they commit; numbers in order, against deadlocks.
select count(pg_advisory_xact_lock(:class::int, k.number))
from (select number from unnest(:numbers::int[]) u (number) order by number) k

-- name: fetch
-- The messages of some ranges of positions, in the order of the ranges.
select w.tick, l.position, l.uri, l.slot, l.payload::text, l.body, l.metadata::text, l.event_id,
       least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z'), l.transaction_id
from unnest(:ticks::bigint[], :los::bigint[], :his::bigint[]) with ordinality as w (tick, lo, hi, place)
join {log} l on l.position between w.lo and w.hi
where (:slots::smallint[] is null or l.slot = any (:slots::smallint[]))
  and (:uri::text = '' or l.uri = :uri::text or starts_with(l.uri, :prefix::text))
order by w.place, l.position
limit :limit::int
