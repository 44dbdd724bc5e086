-- name: lock_retention
-- Begins to delete, unless a group is being put elsewhere: what it will need is not known yet.
-- Whoever seeks from now on waits for the end of the transaction; the next statement sees all who did so before.
select 1 where pg_try_advisory_xact_lock((1869968493::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: lock_parts
-- Begins to drop partitions, unless another one is about it.
select 1 where pg_try_advisory_xact_lock((1869968494::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: lock_janitor
-- Begins to keep the log in order, unless another process is about it; a row if so.
select 1 where pg_try_advisory_xact_lock(hashtextextended(:table::text, 1871))

-- name: slowest
-- The place of the slowest living group, and from where on messages must stay without regard to later ticks.
-- That is because they are the rest of a tick that a cursor stands in, may still appear, or are not sequenced.
-- A paused group lives. Without any, the place lies behind everything.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
        or bool_or(o.paused_at is not null)
), cursors as materialized (
    select o.tick, o.position from {offsets} o join alive a using (consumer_group, uri)
), first as materialized (
    select c.tick, c.position from cursors c order by c.tick, c.position limit 1
)
select coalesce((select f.tick from first f), 9223372036854775807) as tick,
       coalesce((select f.position from first f), 9223372036854775807) as position,
       least(
           (select min(greatest(r.lo, c.position + 1))
            from cursors c
            join {ticks} t on t.tick = c.tick
            cross join lateral unnest(t.lows, t.highs) r (lo, hi)
            where r.hi > c.position),
           (select min(g.lo) from {gaps} g),
           coalesce((select max(h.high) from {head} h), 0) + 1
       ) as first_kept

-- name: lowest_unread
-- The smallest position of the next ticks, the last of them, and how many they are.
select min(t.lows[1]) as lowest, max(t.tick) as last, count(*) as ticks
from (select n.tick, n.lows from {ticks} n where n.tick > :after::bigint order by n.tick limit :limit::int) t

-- name: dead_groups
-- Groups that have not been heard of for some time and have not read everything.
select o.consumer_group, o.uri, extract(epoch from clock_timestamp() - max(o.updated_at))::float8 as idle
from {offsets} o
group by o.consumer_group, o.uri
having max(o.updated_at) < clock_timestamp() - make_interval(secs => :group_seconds::float8)
   and not bool_or(o.paused_at is not null)
   and min(o.tick) < (select max(h.tick) from {head} h)

-- name: delete_slice
-- Deletes, of the next messages, those that are old and not deferred by a living group.
-- Runs after retention was locked, and does nothing where a living group stands before the place from which it was
-- found out what must stay: it was put back since, or came back.
-- Returns whether it may, how many went, how many were old, how many were looked at, the last of them and the first
-- that stays.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
        or bool_or(o.paused_at is not null)
), may as materialized (
    select not exists (
        select from {offsets} o join alive a using (consumer_group, uri)
        where (o.tick, o.position) < (:tick::bigint, :position::bigint)
    ) as go
), slice as materialized (
    select l.position, l.created_at < clock_timestamp() - make_interval(secs => :age::float8) as is_old
    from {log} l
    where l.position > :after::bigint and l.position < :floor::bigint and (select m.go from may m)
    order by l.position
    limit :limit::int
), held as materialized (
    -- One range of an index for each group, however many they have deferred before and after.
    select w.position
    from alive a
    join {deferred} w on w.consumer_group = a.consumer_group and w.uri = a.uri
    where w.position > :after::bigint and w.position <= (select max(s.position) from slice s)
), decided as materialized (
    -- Sorted or hashed whatever the planner expects: a join by nested loops would square the slice.
    select u.position, bool_or(u.is_old) and not bool_or(u.is_held) as goes
    from (select s.position, s.is_old, false as is_held from slice s
          union all
          select h.position, false, true from held h) u
    group by u.position
), gone as (
    delete from {log} l where l.position = any (array(select d.position from decided d where d.goes)) returning 1
)
select (select m.go from may m) as may, (select count(*) from gone) as gone,
       (select count(*) from slice s where s.is_old) as old, (select count(*) from slice) as seen,
       (select max(s.position) from slice s) as last, (select min(d.position) from decided d where not d.goes) as kept

-- name: delete_ticks
-- Deletes, of the next ticks that no cursor of a living group has yet to pass, those whose messages are all gone.
-- One that has a message left stays, so that whoever replays finds it; those around it go. Below the first message
-- that is left there is nothing to look for, and beyond what was cleaned none is gone. The last tick stays, as its
-- number must not be given again.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
        or bool_or(o.paused_at is not null)
), slice as materialized (
    select t.tick, t.lows, t.highs
    from {ticks} t
    where t.tick > :after::bigint
      and t.tick < least((select min(o.tick) from {offsets} o join alive a using (consumer_group, uri)),
                         coalesce((select max(h.tick) from {head} h), 0))
    order by t.tick
    limit :limit::int
), gone as (
    delete from {ticks} t
    where t.tick = any (array(
        select s.tick
        from slice s
        where s.highs[cardinality(s.highs)] < :first::bigint
           or coalesce(s.lows[1], 0) <= :reached::bigint
              and not exists (
                  select from unnest(s.lows, s.highs) r (lo, hi)
                  where exists (select from {log} l where l.position between r.lo and r.hi))
    ))
    returning 1
)
select (select count(*) from gone) as gone, (select count(*) from slice) as seen, (select max(s.tick) from slice s) as last

-- name: first_message
-- The first message that is there.
select min(l.position) from {log} l

-- name: part_may_go
-- A row, if no living group stands before a place, and none has deferred a message of these positions.
with alive as materialized (
    select o.consumer_group, o.uri
    from {offsets} o
    group by o.consumer_group, o.uri
    having max(o.updated_at) >= clock_timestamp() - make_interval(secs => :group_seconds::float8)
        or bool_or(o.paused_at is not null)
)
select 1
where not exists (
    select from {offsets} o join alive a using (consumer_group, uri)
    where (o.tick, o.position) < (:tick::bigint, :position::bigint)
) and not exists (
    select from alive a
    join {deferred} w on w.consumer_group = a.consumer_group and w.uri = a.uri
    where w.position >= :lo::bigint and w.position < :hi::bigint
)
