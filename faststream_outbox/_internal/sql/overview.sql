-- name: count_lanes
-- Messages of each lane, up to a limit of each kind: due and free, leased, due later, set apart; and the oldest free one.
with lane as materialized (
    select u.*
    from unnest(:queues::text[], :keyed::boolean[], :priorities::smallint[]) as u (queue, keyed, priority)
)
select l.queue, l.keyed, l.priority, d.due, d.ready, d.leased,
       case when d.oldest is not null
           then extract(epoch from now() - greatest(d.oldest, '0002-01-01Z'))::float8 end as oldest_seconds,
       s.scheduled, a.set_apart
from lane l
cross join lateral (
    select count(*) as due, count(*) filter (where m.is_free) as ready, count(*) filter (where not m.is_free) as leased,
           min(m.next_attempt_at) filter (where m.is_free) as oldest
    from (
        (
            select o.next_attempt_at,
                   o.acquired_token is null or o.acquired_at < now() - make_interval(secs => :ttl::float8) as is_free
            from {table} o
            where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
              and o.next_attempt_at <= now()
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
        union all
        (
            select o.next_attempt_at,
                   o.acquired_token is null or o.acquired_at < now() - make_interval(secs => :ttl::float8)
            from {table} o
            where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
              and o.next_attempt_at <= now()
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
    ) m
) d
cross join lateral (
    select count(*) as scheduled
    from (
        (
            select from {table} o
            where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
              and o.next_attempt_at > now() and o.next_attempt_at < 'infinity'
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
        union all
        (
            select from {table} o
            where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
              and o.next_attempt_at > now() and o.next_attempt_at < 'infinity'
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
    ) m
) s
cross join lateral (
    select count(*) as set_apart
    from (
        (
            select from {table} o
            where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
              and o.next_attempt_at = 'infinity'
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
        union all
        (
            select from {table} o
            where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
              and o.next_attempt_at = 'infinity'
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :most::int
        )
    ) m
) a

-- name: count_dead
-- Dead letters of each queue, up to a limit.
select q.queue, c.dead
from unnest(:queues::text[]) as q (queue)
cross join lateral (
    select count(*) as dead
    from (select from {dead} d where d.queue = q.queue order by d.queue, d.failed_at limit :most::int) n
) c

-- name: estimate_queue
-- What the planner believes a queue has, by the size of the table and what ANALYZE has found in it.
explain (format json) select from {table} o where o.queue = :queue::text

-- name: holders
-- Worker ids of the leases that live among the first due messages of each lane, and how many each holds.
with lane as materialized (
    select u.*
    from unnest(:queues::text[], :keyed::boolean[], :priorities::smallint[]) as u (queue, keyed, priority)
)
select left(m.acquired_token::text, 8) as worker_id, count(*) as leases
from lane l
cross join lateral (
    (
        select o.acquired_token, o.acquired_at
        from {table} o
        where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
          and o.next_attempt_at <= now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
    union all
    (
        select o.acquired_token, o.acquired_at
        from {table} o
        where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
          and o.next_attempt_at <= now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
) m
where m.acquired_token is not null and m.acquired_at >= now() - make_interval(secs => :ttl::float8)
group by 1

-- name: connections
-- Connections to this database whose names may be those of ours; since when is not shown to everybody.
select a.pid, a.application_name, a.backend_start
from pg_stat_activity a
where a.datname = current_database() and starts_with(a.application_name, 'outbox ')
order by a.pid

-- name: message_by_id
-- A message with what keeps it from running: its queue's pause, its lease, the head of its key, a dead letter of its key.
select o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
       least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
       least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
       case when o.first_attempt_at is not null
           then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       case when o.last_attempt_at is not null
           then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
       case when o.acquired_at is not null
           then least(greatest(o.acquired_at, '0002-01-01Z'), '9998-12-31Z') end as acquired_at,
       o.acquired_token, o.timer_id, o.key, o.priority, o.message_id,
       now() as server_now, o.next_attempt_at = 'infinity' as is_set_apart,
       exists (select from {table} p
               where p.queue = '$paused' and p.timer_id = o.queue and p.acquired_token is not null) as is_paused,
       h.id as head_id, h.is_leased as is_head_leased, h.next_attempt_at as head_due_at,
       coalesce(
           null::bigint
           /*if dead*/
           , (select d.id from {dead} d where d.queue = o.queue and d.key = o.key order by d.queue, d.key limit 1)
           /*end*/
       ) as dead_of_key
from {table} o
left join lateral (
    select h.id, h.acquired_token is not null
               and h.acquired_at >= now() - make_interval(secs => :ttl::float8) as is_leased,
           least(greatest(h.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at
    from (
        (
            select k.id, k.next_attempt_at, k.acquired_token, k.acquired_at
            from {table} k
            where k.queue = o.queue and k.key = o.key and k.timer_id is null and k.next_attempt_at <= k.created_at
              and (k.deliveries_count > 0 or k.last_attempt_at is not null or k.next_attempt_at <= now())
            order by k.queue, k.key, k.id
            limit 1
        )
        union all
        (
            select k.id, k.next_attempt_at, k.acquired_token, k.acquired_at
            from {table} k
            where k.queue = o.queue and k.key = o.key and (k.timer_id is not null or k.next_attempt_at > k.created_at)
              and k.last_attempt_at is not null
            order by k.queue, k.key, k.last_attempt_at
            limit 100
        )
        union all
        (
            select k.id, k.next_attempt_at, k.acquired_token, k.acquired_at
            from {table} k
            where k.queue = o.queue and k.key = o.key and (k.timer_id is not null or k.next_attempt_at > k.created_at)
              and k.last_attempt_at is null and k.next_attempt_at <= now()
            order by k.queue, k.key, k.last_attempt_at, k.next_attempt_at
            limit 100
        )
    ) h
    order by h.id
    limit 1
) h on true
where o.id = :id::bigint and o.queue <> '$paused'

-- name: search_messages
-- Looks through the next messages, newest first, for a message_id: how many, the last one, and the one that has it.
with slice as materialized (
    select o.id, o.message_id
    from {table} o
    where o.id < :before::bigint
    order by o.id desc
    limit :slice::int
)
select count(*) as seen, min(s.id) as last, max(s.id) filter (where s.message_id = :message_id::uuid) as found
from slice s

-- name: search_dead
-- Looks through the next dead letters, newest first, for a message_id or the id that a message had.
with slice as materialized (
    select d.id, d.message_id, d.original_id
    from {dead} d
    where d.id < :before::bigint
    order by d.id desc
    limit :slice::int
)
select count(*) as seen, min(s.id) as last,
       max(s.id) filter (where s.message_id = :message_id::uuid or s.original_id = :original_id::bigint) as found
from slice s

-- name: timers
-- The next timers to fall due of the first so many timers by name, and how many of those there were.
select t.queue, t.timer_id, t.id, t.due_at, t.is_leased, t.attempts_count, t.seen
from (
    select m.*, count(*) over () as seen
    from (
        select o.queue, o.timer_id, o.id,
               least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as due_at,
               o.acquired_token is not null
                   and o.acquired_at >= now() - make_interval(secs => :ttl::float8) as is_leased,
               o.attempts_count
        from {table} o
        where o.timer_id is not null and o.queue <> '$paused'
        order by o.queue, o.timer_id
        limit :most::int
    ) m
) t
order by t.due_at, t.id
limit :limit::int

-- name: timers_of_queue
-- As timers, of one queue.
select t.queue, t.timer_id, t.id, t.due_at, t.is_leased, t.attempts_count, t.seen
from (
    select m.*, count(*) over () as seen
    from (
        select o.queue, o.timer_id, o.id,
               least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as due_at,
               o.acquired_token is not null
                   and o.acquired_at >= now() - make_interval(secs => :ttl::float8) as is_leased,
               o.attempts_count
        from {table} o
        where o.timer_id is not null and o.queue = :queue::text
        order by o.queue, o.timer_id
        limit :most::int
    ) m
) t
order by t.due_at, t.id
limit :limit::int

-- name: timers_of_lanes
-- The next timers among so many messages of each lane that are due, and so many that fall due next.
with lane as materialized (
    select u.*
    from unnest(:queues::text[], :keyed::boolean[], :priorities::smallint[]) as u (queue, keyed, priority)
)
select m.queue, m.timer_id, m.id, least(greatest(m.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as due_at,
       m.acquired_token is not null and m.acquired_at >= now() - make_interval(secs => :ttl::float8) as is_leased,
       m.attempts_count, count(*) over () as seen
from lane l
cross join lateral (
    (
        select o.queue, o.timer_id, o.id, o.next_attempt_at, o.acquired_token, o.acquired_at, o.attempts_count
        from {table} o
        where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
          and o.next_attempt_at <= now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
    union all
    (
        select o.queue, o.timer_id, o.id, o.next_attempt_at, o.acquired_token, o.acquired_at, o.attempts_count
        from {table} o
        where not l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is null
          and o.next_attempt_at > now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
    union all
    (
        select o.queue, o.timer_id, o.id, o.next_attempt_at, o.acquired_token, o.acquired_at, o.attempts_count
        from {table} o
        where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
          and o.next_attempt_at <= now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
    union all
    (
        select o.queue, o.timer_id, o.id, o.next_attempt_at, o.acquired_token, o.acquired_at, o.attempts_count
        from {table} o
        where l.keyed and o.queue = l.queue and o.priority = l.priority and o.key is not null
          and o.next_attempt_at > now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    )
) m
where m.timer_id is not null
order by due_at, m.id
limit :limit::int

-- name: group_newest_dead
-- The newest dead letters counted by queue, reason and type of error, with the first and the last time of each.
select d.queue, d.failure_reason, d.error_type, count(*) as letters,
       least(greatest(min(d.failed_at), '0002-01-01Z'), '9998-12-31Z') as first_failed_at,
       least(greatest(max(d.failed_at), '0002-01-01Z'), '9998-12-31Z') as last_failed_at
from (
    select n.queue, n.failure_reason, n.error_type, n.failed_at
    from {dead} n
    order by n.id desc
    limit :most::int
) d
group by d.queue, d.failure_reason, d.error_type
order by count(*) desc, d.queue, d.failure_reason, d.error_type

-- name: dead_after
-- Dead letters of a selection behind one, by id.
select id, original_id, message_id, queue, payload, headers::text, key, priority, timer_id, attempts_count,
       deliveries_count, least(greatest(created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
       case when first_attempt_at is not null
           then least(greatest(first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       case when last_attempt_at is not null
           then least(greatest(last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
       least(greatest(failed_at, '0002-01-01Z'), '9998-12-31Z') as failed_at, failure_reason, last_exception,
       error_type, error_message, traceback
from {dead}
where id > :after::bigint
  and (:ids::bigint[] is null or id = any (:ids::bigint[]))
  and (:queue::text is null or queue = :queue::text)
  and (:key::text is null or key = :key::text)
  and (:reason::text is null or failure_reason = :reason::text)
  and (:error_type::text is null or error_type = :error_type::text)
  and (:since::timestamptz is null or failed_at >= :since::timestamptz)
  and (:until::timestamptz is null or failed_at < :until::timestamptz)
order by id
limit :limit::int

-- name: written
-- Rows that were ever inserted and deleted, as the server's statistics count them, and its clock.
select pg_stat_get_tuples_inserted(:table::text::regclass) as inserted,
       pg_stat_get_tuples_deleted(:table::text::regclass) as deleted,
       pg_stat_get_tuples_inserted(:dead::text::regclass) as died,
       extract(epoch from clock_timestamp())::float8 as at, pg_is_in_recovery() as is_standby
