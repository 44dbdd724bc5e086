-- name: oldest_of_queues
-- For how long the oldest message of each queue waits that is ready, leased, or put off after an attempt.
-- Looks at the first few messages of each lane to fall due: one that was tried before is as old as its first attempt.
-- What is set apart, out of reach of every claim, does not count.
with recursive keyless (queue, priority) as (
    select q.queue, (select o.priority from {table} o where o.queue = q.queue and o.key is null
                     order by o.priority limit 1)
    from unnest(:queues::text[]) q (queue)
    union all
    select k.queue, (select o.priority from {table} o
                     where o.queue = k.queue and o.key is null and o.priority > k.priority
                     order by o.priority limit 1)
    from keyless k where k.priority is not null
), keyed (queue, priority) as (
    select q.queue, (select o.priority from {table} o where o.queue = q.queue and o.key is not null
                     order by o.priority limit 1)
    from unnest(:queues::text[]) q (queue)
    union all
    select k.queue, (select o.priority from {table} o
                     where o.queue = k.queue and o.key is not null and o.priority > k.priority
                     order by o.priority limit 1)
    from keyed k where k.priority is not null
), first as materialized (
    select k.queue, f.since
    from keyless k
    cross join lateral (
        select least(o.next_attempt_at, o.first_attempt_at) as since from {table} o
        where o.queue = k.queue and o.key is null and o.priority = k.priority and o.next_attempt_at < 'infinity'
        order by o.next_attempt_at, o.id
        limit :limit::int
    ) f
    union all
    select k.queue, f.since
    from keyed k
    cross join lateral (
        select least(o.next_attempt_at, o.first_attempt_at) as since from {table} o
        where o.queue = k.queue and o.key is not null and o.priority = k.priority and o.next_attempt_at < 'infinity'
        order by o.next_attempt_at, o.id
        limit :limit::int
    ) f
)
select f.queue, extract(epoch from clock_timestamp() - greatest(min(f.since), '0002-01-01Z'))::float8 as seconds
from first f
where f.since <= clock_timestamp()
group by f.queue
