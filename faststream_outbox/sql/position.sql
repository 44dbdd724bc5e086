-- name: low_water
-- How far a group has come everywhere, and the last message before that in the order of the log, with its transaction.
-- A cursor need not stand behind a message of its own tick: it may have been put just before one.
select c.tick, c.position, m.position,
       coalesce((select l.transaction_id from {log} l where l.position = m.position), 0)
from (
    select o.tick, o.position
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text
    order by o.tick, o.position
    limit 1
) c
cross join lateral (
    select coalesce(
        (select max(least(r.hi, c.position))
         from {ticks} t
         cross join lateral unnest(t.lows, t.highs) r (lo, hi)
         where t.tick = c.tick and r.lo <= c.position),
        (select t.highs[cardinality(t.highs)] from {ticks} t where t.tick < c.tick order by t.tick desc limit 1),
        0
    ) as position
) m

-- name: known_group
-- Whether a group has a place in the log, a member, or something set aside; without a uri, whatever it reads.
select 1
where exists (select from {offsets} o
              where o.consumer_group = :group::text and (:uri::text is null or o.uri = :uri::text))
   or exists (select from {members} m
              where m.consumer_group = :group::text and (:uri::text is null or m.uri = :uri::text))
   or exists (select from {aside} a
              where a.consumer_group = :group::text and (:uri::text is null or a.uri = :uri::text))

-- name: groups
-- Groups that have a place in the log or a member, and what they read.
select o.consumer_group, o.uri from {offsets} o
union
select m.consumer_group, m.uri from {members} m
order by 1, 2
limit :limit::int

-- name: place_of
-- The tick of a position; nothing while it is not sequenced.
select t.tick
from {ticks} t
where exists (select from unnest(t.lows, t.highs) r (lo, hi) where :position::bigint between r.lo and r.hi)
order by t.tick desc
limit 1

-- name: position_of_event
-- The position of a message by its event_id.
select l.position from {log} l where l.event_id = :event_id::uuid

-- name: place_of_pair
-- The place before the first message that lies behind a pair of transaction and position.
-- A larger position lies behind it too: where the message at `offset` is gone, all that had a smaller one are, and
-- those that are left may have any transaction.
select t.tick, l.position - 1
from {ticks} t
cross join lateral unnest(t.lows, t.highs) r (lo, hi)
join {log} l on l.position between r.lo and r.hi
where l.position > :offset::bigint
   or (l.transaction_id, l.position) > (:transaction_id::bigint, :offset::bigint)
order by t.tick, l.position
limit 1

-- name: place_before
-- The place behind the last tick that was made before a moment.
select t.tick, t.highs[cardinality(t.highs)]
from {ticks} t
where t.at < :moment::timestamptz
order by t.at desc, t.tick desc
limit 1

-- name: last_place
-- The place behind the last tick.
select t.tick, t.highs[cardinality(t.highs)] from {ticks} t order by t.tick desc limit 1

-- name: lock_group
-- Keeps retention from deleting, and spans of a group from being cut and joined, until the end of the transaction.
select pg_advisory_xact_lock_shared((1869968493::bigint << 32) + '{sequence_name}'::regclass::oid::bigint),
       pg_advisory_xact_lock(hashtextextended(:group::text || chr(31) || :uri::text, 1869))

-- name: lock_spans
-- Waits for whoever settles at this moment, and lets nobody settle until the end of the transaction.
select o.lo
from {offsets} o
where o.consumer_group = :group::text and o.uri = :uri::text
order by o.lo
for update

-- name: seek
-- Puts all of a group's cursors to one place; whoever reads starts there, and what was under way does not count.
-- Runs after the spans were locked, so that it sees whatever the last settle has put aside. What waits behind the place
-- is read again; what waits before it is passed like the rest where a cursor moves on, and else goes on waiting.
with before as materialized (
    select o.lo, o.hi, o.tick, o.position
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text
), moved as (
    update {offsets} o
    set tick = :tick::bigint, position = :position::bigint, epoch = o.epoch % 9223372036854775807 + 1, owner = null, until = null,
        updated_at = clock_timestamp()
    where o.consumer_group = :group::text and o.uri = :uri::text
    returning o.lo
), made as (
    insert into {offsets} as n (consumer_group, uri, lo, hi, tick, position, epoch)
    select :group::text, :uri::text, 0, 255, :tick::bigint, :position::bigint, 1
    where not exists (select from {offsets} o where o.consumer_group = :group::text and o.uri = :uri::text)
    on conflict (consumer_group, uri, lo) do update
    set tick = excluded.tick, position = excluded.position, epoch = n.epoch % 9223372036854775807 + 1, owner = null, until = null
    returning n.lo
), gone as (
    delete from {aside} a
    where a.consumer_group = :group::text and a.uri = :uri::text
      and ((a.tick, a.position) > (:tick::bigint, :position::bigint)
           or (a.state <> 'parked' and not exists (
                   select from before b
                   where a.slot between b.lo and b.hi
                     and (b.tick, b.position) >= (:tick::bigint, :position::bigint))))
)
select lo, pg_notify(:channel::text, 'changed') from (select lo from moved union all select lo from made) s limit 1

-- name: lag
-- What a group has not read yet, by span: messages, and seconds since the first of them was sequenced.
-- A killed process has not given its slots back: it is their owner only while its lease lives.
select o.consumer_group, o.uri, o.lo, o.hi, o.tick, o.position, case when o.until >= clock_timestamp() then o.owner end,
       case when o.until is not null then least(greatest(o.until, '0002-01-01Z'), '9998-12-31Z') end,
       least(greatest(o.updated_at, '0002-01-01Z'), '9998-12-31Z'),
       coalesce(u.count, 0), coalesce(extract(epoch from clock_timestamp() - u.since)::float8, 0)
from {offsets} o
left join lateral (
    select count(*) as count, min(t.at) as since
    from {ticks} t
    cross join lateral unnest(t.lows, t.highs) r (lo, hi)
    join {log} l on l.position between r.lo and r.hi
    where t.tick >= o.tick and (t.tick > o.tick or l.position > o.position) and l.slot between o.lo and o.hi
      and (o.uri = '' or l.uri = o.uri or starts_with(l.uri, case when right(o.uri, 1) = '/' then o.uri
                                                                 else o.uri || '/' end))
) u on true
where (:group::text is null or o.consumer_group = :group::text) and (:uri::text is null or o.uri = :uri::text)
order by o.consumer_group, o.uri, o.lo

-- name: lag_by_slot
-- What a group has not read yet, slot by slot.
select l.slot, count(*), extract(epoch from clock_timestamp() - min(t.at))::float8
from {offsets} o
join {ticks} t on t.tick >= o.tick
cross join lateral unnest(t.lows, t.highs) r (lo, hi)
join {log} l on l.position between r.lo and r.hi
where o.consumer_group = :group::text and o.uri = :uri::text
  and (t.tick > o.tick or l.position > o.position) and l.slot between o.lo and o.hi
  and (o.uri = '' or l.uri = o.uri or starts_with(l.uri, case when right(o.uri, 1) = '/' then o.uri
                                                             else o.uri || '/' end))
group by l.slot
order by l.slot

-- name: unread
-- How many of these messages a group has yet to handle.
select count(*)
from unnest(:positions::bigint[]) p (position)
join {log} l on l.position = p.position
left join lateral (
    select t.tick from {ticks} t
    where t.tick >= (select coalesce(min(o.tick), 0) from {offsets} o
                     where o.consumer_group = :group::text and o.uri = :uri::text)
      and exists (select from unnest(t.lows, t.highs) r (lo, hi) where p.position between r.lo and r.hi)
    limit 1
) t on true
left join {offsets} o
  on o.consumer_group = :group::text and o.uri = :uri::text and l.slot between o.lo and o.hi
left join {aside} a
  on a.consumer_group = :group::text and a.uri = :uri::text and a.position = l.position and a.state <> 'parked'
left join {head} h on h.one
where a.position is not null or o.lo is null
   or (t.tick is null and (l.position > coalesce(h.high, 0) or exists (
           select from {gaps} g where l.position between g.lo and g.hi)))
   or (t.tick, l.position) > (o.tick, o.position)

-- name: lock_retention
-- Begins to delete, unless a group is being put elsewhere: what it will need is not known yet.
-- Whoever seeks from now on waits for the end of the transaction; the next statement sees all who did so before.
select 1 where pg_try_advisory_xact_lock((1869968493::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: lock_parts
-- Begins to drop partitions, unless another one is about it.
select 1 where pg_try_advisory_xact_lock((1869968494::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: retained
-- From where on messages must stay: unread by a living group, set aside by one, or not sequenced.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
), cursors as materialized (
    select o.tick, o.position from {offsets} o join alive a using (consumer_group, uri)
)
select least(
    (select min(t.lows[1]) from {ticks} t where t.tick > (select min(c.tick) from cursors c)),
    (select min(greatest(r.lo, c.position + 1))
     from cursors c
     join {ticks} t on t.tick = c.tick
     cross join lateral unnest(t.lows, t.highs) r (lo, hi)
     where r.hi > c.position),
    (select min(w.position) from {aside} w join alive a using (consumer_group, uri)),
    (select min(g.lo) from {gaps} g),
    (select h.high + 1 from {head} h)
)

-- name: dead_groups
-- Groups that have not been heard of for some time and have not read everything.
select o.consumer_group, o.uri, extract(epoch from clock_timestamp() - max(o.updated_at))::float8
from {offsets} o
group by o.consumer_group, o.uri
having max(o.updated_at) < clock_timestamp() - make_interval(secs => :group_seconds::float8)
   and min(o.tick) < (select max(h.tick) from {head} h)

-- name: delete_slice
-- Deletes, of the next messages, those that are old, read by every living group and not set aside by one.
-- From where on messages must stay is found by the same snapshot; it runs after retention was locked.
-- Returns how many went, how many were old, where to go on, and from where on messages must stay.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
), cursors as materialized (
    select o.tick, o.position from {offsets} o join alive a using (consumer_group, uri)
), floor as materialized (
    select least(
        (select min(t.lows[1]) from {ticks} t where t.tick > (select min(c.tick) from cursors c)),
        (select min(greatest(r.lo, c.position + 1))
         from cursors c
         join {ticks} t on t.tick = c.tick
         cross join lateral unnest(t.lows, t.highs) r (lo, hi)
         where r.hi > c.position),
        (select min(g.lo) from {gaps} g),
        (select h.high + 1 from {head} h)
    ) as position
), slice as materialized (
    select l.position, l.created_at < clock_timestamp() - make_interval(secs => :age::float8) as is_old
    from {log} l
    where l.position > :after::bigint and l.position < (select f.position from floor f)
    order by l.position
    limit :limit::int
), gone as (
    delete from {log} l using slice s
    where l.position = s.position and s.is_old
      and l.position not in (select w.position from {aside} w join alive a using (consumer_group, uri))
    returning 1
)
select (select count(*) from gone), (select count(*) from slice where is_old), (select max(position) from slice),
       (select f.position from floor f)

-- name: delete_ticks
-- Deletes ticks whose messages are all gone and that no cursor of a living group stands in.
delete from {ticks} t
where t.tick < (
        select coalesce(min(g.tick), 9223372036854775807)
        from (
            select min(o.tick) as tick
            from {offsets} o
            group by o.consumer_group, o.uri
            having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
        ) g
    )
  and t.tick < (select h.tick from {head} h)
  and t.highs[cardinality(t.highs)] < (select coalesce(min(l.position), 9223372036854775807) from {log} l)
returning 1
