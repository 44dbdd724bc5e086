-- name: numbers
-- How far positions were drawn, and the highest that is sequenced or there; without those that no sequence can reach.
select '{sequence_name}'::text as sequence, may.read as may_read,
       case when may.read then coalesce(pg_sequence_last_value('{sequence_name}'::regclass), 0) end as drawn,
       greatest(h.high, (select l.position from {log} l
                         where l.position < least(coalesce(h.high, 0), 9223371036854775807) + 1000000000000
                         order by l.position desc limit 1)) as highest
from (select max(n.high) as high from {head} n) h
cross join lateral (select has_sequence_privilege('{sequence_name}'::regclass, 'usage, select') as read) may

-- name: idle_groups
-- Groups that were not heard of for some time, are not paused and have not read everything, and about how much that is.
select o.consumer_group, o.uri,
       extract(epoch from clock_timestamp() - greatest(max(o.updated_at), '0002-01-01Z'))::float8 as seconds,
       greatest((select max(h.high) from {head} h) - (array_agg(o.position order by o.tick, o.position))[1], 0) as messages
from {offsets} o
group by o.consumer_group, o.uri
having max(o.updated_at) < clock_timestamp() - make_interval(secs => :seconds::float8)
   and not bool_or(o.paused_at is not null)
   and min(o.tick) < (select max(h.tick) from {head} h)
order by 4 desc, 1, 2
limit 100

-- name: forgotten_group_pauses
-- Groups that are paused for some time, and about how many messages they have not read.
select o.consumer_group, o.uri,
       extract(epoch from clock_timestamp() - greatest(o.paused_at, '0002-01-01Z'))::float8 as seconds,
       greatest((select max(h.high) from {head} h) - o.position, 0) as messages
from {offsets} o
where o.lo = 0 and o.paused_at < clock_timestamp() - make_interval(secs => :seconds::float8)
order by o.paused_at
limit 100

-- name: parked_heads
-- Keys whose first message is parked while others wait behind it for some time: most waiting first.
-- A descent of an index for each key that has something waiting, up to so many keys; of a few that are
-- held, how many wait is counted up to a limit.
with recursive waiting (consumer_group, uri, slot, key, n) as (
    (select a.consumer_group, a.uri, a.slot, a.key, 1 from {deferred} a where a.state <> 'parked'
     order by a.consumer_group, a.uri, a.slot, a.key limit 1)
    union all
    select n.consumer_group, n.uri, n.slot, n.key, w.n + 1
    from waiting w
    cross join lateral (
        select a.consumer_group, a.uri, a.slot, a.key from {deferred} a
        where a.state <> 'parked'
          and (a.consumer_group, a.uri, a.slot, a.key) > (w.consumer_group, w.uri, w.slot, w.key)
        order by a.consumer_group, a.uri, a.slot, a.key
        limit 1
    ) n
    where w.n < :most::int
), held as materialized (
    select w.consumer_group, w.uri, w.slot, w.key, h.position, h.error_type, f.updated_at
    from waiting w
    cross join lateral (
        select a.state, a.updated_at from {deferred} a
        where a.consumer_group = w.consumer_group and a.uri = w.uri and a.slot = w.slot and a.key = w.key
          and a.state <> 'parked'
        order by a.consumer_group, a.uri, a.slot, a.key, a.tick, a.position
        limit 1
    ) f
    cross join lateral (
        select a.position, a.state, a.error_type from {deferred} a
        where a.consumer_group = w.consumer_group and a.uri = w.uri and a.key = w.key
        order by a.consumer_group, a.uri, a.key, a.tick, a.position
        limit 1
    ) h
    where h.state = 'parked' and f.state = 'deferred'
      and f.updated_at < clock_timestamp() - make_interval(secs => :seconds::float8)
    limit 20
)
select h.consumer_group, h.uri, h.key, h.position, h.error_type,
       extract(epoch from clock_timestamp() - greatest(h.updated_at, '0002-01-01Z'))::float8 as seconds,
       (select count(*)
        from (select from {deferred} a
              where a.consumer_group = h.consumer_group and a.uri = h.uri and a.slot = h.slot and a.key = h.key
                and a.state <> 'parked'
              limit 1000) u) as waiting
from held h
order by 7 desc, 1, 2, 3
