-- name: append
-- Inserts messages in the order given and returns their positions; a taken event_id is left out.
-- It reads nothing: whether numbers were drawn before, by a database that this is a copy of, is what the ticker finds.
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
returning position, event_id

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
returning position, event_id

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
returning position, event_id

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
select m.position, m.event_id,
       1 / (case when (select count(*) from made) = cardinality(:uris::text[]) then 1 else 0 end) as is_whole
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
-- The messages of some ranges of positions that somebody wants, in the order of the ranges; at least the first of them.
-- Cut off where they have too many bytes: first by what is stored, which nothing has to be read for, then by what will
-- be sent, where that is known only after it was decompressed. Those that cannot be read come without their content, and
-- all do where that list is null. The last columns are how many there are up to the limit, and how many bytes each has.
select s.tick, s.position, s.uri, s.slot, s.payload::text, s.body, s.metadata::text, s.event_id,
       least(greatest(s.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at, s.transaction_id, s.found,
       s.bytes as size
from (
    select b.*, sum(b.bytes) over (order by b.place, b.position rows unbounded preceding) - b.bytes as bytes_before
    from (
        select f.*,
               coalesce(octet_length(f.body), 0)
               + coalesce(case when pg_column_compression(f.payload) is null then pg_column_size(f.payload)
                               else octet_length(f.payload::text) end, 0)
               + coalesce(case when pg_column_compression(f.metadata) is null then pg_column_size(f.metadata)
                               else octet_length(f.metadata::text) end, 0) as bytes
        from (
            select n.*, count(*) over () as found,
                   sum(n.stored) over (order by n.place, n.position rows unbounded preceding) - n.stored
                       as stored_before
            from (
                select w.tick, w.place, l.position, l.uri, l.slot, l.event_id, l.created_at, l.transaction_id,
                       case when l.position <> all (:unreadable::bigint[]) then l.payload end as payload,
                       case when l.position <> all (:unreadable::bigint[]) then l.body end as body,
                       case when l.position <> all (:unreadable::bigint[]) then l.metadata end as metadata,
                       coalesce(pg_column_size(l.payload), 0) + coalesce(pg_column_size(l.body), 0)
                       + pg_column_size(l.metadata) as stored
                from unnest(:ticks::bigint[], :los::bigint[], :his::bigint[]) with ordinality as w (tick, lo, hi, place)
                join {log} l on l.position between w.lo and w.hi
                where exists (
                    select from unnest(:uris::text[], :prefixes::text[], :first_slots::smallint[],
                                       :last_slots::smallint[]) a (uri, prefix, first_slot, last_slot)
                    where l.slot between a.first_slot and a.last_slot
                      and (a.uri = '' or l.uri = a.uri or starts_with(l.uri, a.prefix))
                )
                order by w.place, l.position
                limit :limit::int
            ) n
        ) f
        where f.stored_before < :bytes::bigint
    ) b
) s
where s.bytes_before < :bytes::bigint
order by s.place, s.position

-- name: ticks_after
-- The ticks from one on, in order; so many positions behind that one, or the next tick whatever it has.
select t.tick, t.lows, t.highs, t.count as positions, t.at
from (
    select n.*,
           coalesce(sum(n.count) filter (where n.tick > :tick::bigint)
                        over (order by n.tick rows between unbounded preceding and 1 preceding), 0) as positions_before
    from (
        select o.tick, o.lows, o.highs, o.count, o.at
        from {ticks} o
        where o.tick >= :tick::bigint
        order by o.tick
        limit :limit::int
    ) n
) t
where t.positions_before < :positions::bigint
order by t.tick
