-- name: ids
-- How far the queues' ids were drawn, and the highest that is there; nothing of those that no sequence can reach.
select pg_get_serial_sequence(:table::text, 'id') as sequence, may.read as may_read,
       case when may.read then coalesce(pg_sequence_last_value(s.name), 0) end as drawn,
       (select o.id from {table} o where o.id < 4611686018427387904 order by o.id desc limit 1) as highest
from (select pg_get_serial_sequence(:table::text, 'id')::regclass as name offset 0) s
cross join lateral (select coalesce(has_sequence_privilege(s.name, 'usage, select'), false) as read) may

-- name: dead_ids
-- The same for the dead letters' ids.
select pg_get_serial_sequence(:table::text, 'id') as sequence, may.read as may_read,
       case when may.read then coalesce(pg_sequence_last_value(s.name), 0) end as drawn,
       (select d.id from {dead} d where d.id < 4611686018427387904 order by d.id desc limit 1) as highest
from (select pg_get_serial_sequence(:table::text, 'id')::regclass as name offset 0) s
cross join lateral (select coalesce(has_sequence_privilege(s.name, 'usage, select'), false) as read) may

-- name: ready
-- For each queue that is not paused, the age of the oldest message that is due and that nobody holds.
-- A few descents of an index for each lane, up to so many lanes; what is leased is passed over, up to a limit.
with recursive keyless (queue, priority, n) as (
    (select o.queue, o.priority, 1 from {table} o where o.key is null order by o.queue, o.priority limit 1)
    union all
    select n.queue, n.priority, k.n + 1
    from keyless k
    cross join lateral (
        select o.queue, o.priority from {table} o
        where o.key is null and (o.queue, o.priority) > (k.queue, k.priority)
        order by o.queue, o.priority
        limit 1
    ) n
    where k.n < :most::int
), keyed (queue, priority, n) as (
    (select o.queue, o.priority, 1 from {table} o where o.key is not null order by o.queue, o.priority limit 1)
    union all
    select n.queue, n.priority, k.n + 1
    from keyed k
    cross join lateral (
        select o.queue, o.priority from {table} o
        where o.key is not null and (o.queue, o.priority) > (k.queue, k.priority)
        order by o.queue, o.priority
        limit 1
    ) n
    where k.n < :most::int
), oldest as materialized (
    select k.queue, f.due_at
    from keyless k
    cross join lateral (
        select f.due_at
        from (select o.next_attempt_at as due_at, o.acquired_token
              from {table} o
              where o.queue = k.queue and o.priority = k.priority and o.key is null and o.next_attempt_at <= now()
              order by o.queue, o.priority, o.next_attempt_at, o.id
              limit 1000) f
        where f.acquired_token is null
        order by f.due_at
        limit 1
    ) f
    union all
    select k.queue, f.due_at
    from keyed k
    cross join lateral (
        select f.due_at
        from (select o.next_attempt_at as due_at, o.acquired_token
              from {table} o
              where o.queue = k.queue and o.priority = k.priority and o.key is not null and o.next_attempt_at <= now()
              order by o.queue, o.priority, o.next_attempt_at, o.id
              limit 1000) f
        where f.acquired_token is null
        order by f.due_at
        limit 1
    ) f
)
select o.queue, extract(epoch from now() - greatest(min(o.due_at), '0002-01-01Z'))::float8 as seconds
from oldest o
where o.queue <> '$paused'
  and not exists (select from {table} p
                  where p.queue = '$paused' and p.timer_id = o.queue and p.acquired_token is not null)
group by o.queue
having min(o.due_at) < now() - make_interval(secs => :seconds::float8)
order by 2 desc
limit 100

-- name: forgotten_pauses
-- Queues that are paused for some time, and how many messages wait there, up to a limit.
select p.timer_id as queue,
       extract(epoch from now() - least(greatest(p.acquired_at, '0002-01-01Z'), '9998-12-31Z'))::float8 as seconds,
       (select count(*) from (select from {table} o where o.queue = p.timer_id and o.key is null limit 1000) w)
       + (select count(*) from (select from {table} o where o.queue = p.timer_id and o.key is not null limit 1000) w)
           as waiting
from {table} p
where p.queue = '$paused' and p.timer_id is not null and p.acquired_token is not null
  and p.acquired_at < now() - make_interval(secs => :seconds::float8)
order by p.acquired_at
limit 100

-- name: held_keys
-- Keys that have a dead letter, and messages that are due for some time while nobody holds one: most waiting first.
-- A descent of an index for each key, up to so many keys, and the first messages of each; of a few keys that are held,
-- how many wait is counted up to a limit. Whoever works on a key holds its first messages.
with recursive dead_key (queue, key, n) as (
    (select d.queue, d.key, 1 from {dead} d where d.key is not null order by d.queue, d.key limit 1)
    union all
    select n.queue, n.key, k.n + 1
    from dead_key k
    cross join lateral (
        select d.queue, d.key from {dead} d
        where d.key is not null and (d.queue, d.key) > (k.queue, k.key)
        order by d.queue, d.key
        limit 1
    ) n
    where k.n < :most::int
), held as materialized (
    select k.queue, k.key, w.seconds
    from dead_key k
    cross join lateral (
        select bool_or(u.is_held) as is_held,
               extract(epoch from now() - greatest(min(u.due_at), '0002-01-01Z'))::float8 as seconds
        from (
            (select o.next_attempt_at as due_at, o.acquired_token is not null as is_held
             from {table} o
             where o.queue = k.queue and o.key = k.key and o.timer_id is null and o.next_attempt_at <= o.created_at
             order by o.queue, o.key, o.id
             limit 10)
            union all
            (select o.next_attempt_at, o.acquired_token is not null
             from {table} o
             where o.queue = k.queue and o.key = k.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
             order by o.queue, o.key, o.id
             limit 10)
        ) u
        where u.due_at <= now()
    ) w
    where not w.is_held and w.seconds > :seconds::float8
      and not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = k.queue and p.acquired_token is not null)
    limit 20
)
select h.queue, h.key,
       (select count(*)
        from (select from {table} o
              where o.queue = h.queue and o.key = h.key and o.timer_id is null and o.next_attempt_at <= o.created_at
              order by o.queue, o.key, o.id
              limit 1000) w)
       + (select count(*)
          from (select from {table} o
                where o.queue = h.queue and o.key = h.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
                order by o.queue, o.key, o.id
                limit 1000) w) as waiting,
       h.seconds,
       array(select d.id from {dead} d where d.queue = h.queue and d.key = h.key order by d.queue, d.key limit 10)
           as letters
from held h
order by 3 desc, 1, 2

-- name: recent_dead
-- For each queue, how many messages died in the last hour, counted up to a limit, and the error of the last one.
with recursive dead_queue (queue, n) as (
    (select d.queue, 1 from {dead} d order by d.queue limit 1)
    union all
    select n.queue, q.n + 1
    from dead_queue q
    cross join lateral (select d.queue from {dead} d where d.queue > q.queue order by d.queue limit 1) n
    where q.n < :most::int
)
select q.queue, c.letters, l.failure_reason, l.error_type
from dead_queue q
cross join lateral (
    select count(*) as letters
    from (select from {dead} d
          where d.queue = q.queue and d.failed_at > now() - interval '1 hour' and d.failed_at <= now()
          limit :counted::int) r
) c
cross join lateral (
    select d.failure_reason, d.error_type from {dead} d
    where d.queue = q.queue and d.failed_at <= now()
    order by d.queue desc, d.failed_at desc
    limit 1
) l
where c.letters >= :letters::int
order by c.letters desc, q.queue
limit 100
