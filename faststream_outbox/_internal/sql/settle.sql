-- name: settle_done
-- Deletes handled messages whose lease still stands, and returns their ids; the token is checked again under the lock.
delete from {table}
where ctid = any (array(
    select m.place
    from unnest(:ids::bigint[], :tokens::uuid[]) as d (id, token)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        limit 1
    ) m
))
  and acquired_token = any (:tokens::uuid[])
returning id

-- name: settle_within
-- As settle_done, on a connection of the application's: planned each time for the table as it is.
delete from {table}
where ctid = any (array(
    select m.place
    from unnest(:ids::bigint[], :tokens::uuid[]) as d (id, token)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        limit 1
    ) m
))
  and acquired_token = any (:tokens::uuid[])
  -- Always true, and dear for a planner that does not know the values: so it keeps no plan from when the table was empty.
  and (select count(*) = 1
       from generate_series(cardinality(:ids::bigint[]), cardinality(:ids::bigint[])) a
       cross join generate_series(cardinality(:ids::bigint[]), cardinality(:ids::bigint[])) b)
returning id

-- name: lock
-- Holds messages whose lease still stands until the transaction ends, and returns their ids; planned as settle_within.
select m.id
from unnest(:ids::bigint[], :tokens::uuid[]) as d (id, token)
cross join lateral (
    select o.id
    from {table} o
    where o.id = d.id and o.acquired_token = d.token
    for update
) m
where (select count(*) = 1
       from generate_series(cardinality(:ids::bigint[]), cardinality(:ids::bigint[])) a
       cross join generate_series(cardinality(:ids::bigint[]), cardinality(:ids::bigint[])) b)

-- name: settle_retry
-- Schedules another attempt of failed messages whose lease still stands, and returns their ids and due times.
update {table} t
set acquired_token = null, acquired_at = null,
    next_attempt_at = clock_timestamp() + make_interval(secs => m.delay),
    attempts_count = least(t.attempts_count, 9223372036854775806) + m.attempt,
    deliveries_count = greatest(t.deliveries_count, -9223372036854775807) - (1 - m.attempt),
    first_attempt_at = coalesce(t.first_attempt_at, clock_timestamp()),
    last_attempt_at = clock_timestamp()
from (
    select p.place, d.delay, d.attempt
    from unnest(:ids::bigint[], :tokens::uuid[], :delays::float8[], :attempts::int[]) as d (id, token, delay, attempt)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        for update
    ) p
) m
where t.ctid = m.place
returning t.id, t.next_attempt_at

-- name: settle_release
-- Gives back messages whose lease still stands; a delivery that never began is not counted.
update {table} t
set acquired_token = null, acquired_at = null,
    deliveries_count = greatest(t.deliveries_count, -9223372036854775807) - m.uncounted
from (
    select p.place, d.uncounted
    from unnest(:ids::bigint[], :tokens::uuid[], :uncounted::int[]) as d (id, token, uncounted)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        for update
    ) p
) m
where t.ctid = m.place
returning t.id

-- name: settle_dead
-- Moves failed messages whose lease still stands to the dead letters, with their error, and returns their ids.
with verdict as materialized (
    select d.*, m.place
    from unnest(:ids::bigint[], :tokens::uuid[], :attempts::int[], :reasons::text[], :exceptions::text[],
                :error_types::text[], :error_messages::text[], :tracebacks::text[])
         as d (id, token, attempt, reason, exception, error_type, error_message, traceback)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        for update
    ) m
), gone as (
    delete from {table} where ctid = any (array(select place from verdict)) returning *
)
insert into {dead} (original_id, message_id, queue, payload, headers, key, priority, timer_id, attempts_count,
                    deliveries_count, created_at, first_attempt_at, last_attempt_at, failed_at, failure_reason,
                    last_exception, error_type, error_message, traceback)
select g.id, g.message_id, g.queue, g.payload, g.headers, g.key, g.priority, g.timer_id,
       least(g.attempts_count, 9223372036854775806) + v.attempt, g.deliveries_count, g.created_at,
       coalesce(g.first_attempt_at, clock_timestamp()), clock_timestamp(), clock_timestamp(), v.reason,
       v.exception, v.error_type, v.error_message, v.traceback
from gone g
join verdict v on v.id = g.id
order by g.id
returning original_id

-- name: settle_apart
-- Keeps failed messages, out of reach of every claim, where the dead letters cannot be written.
update {table} t
set acquired_token = null, acquired_at = null, next_attempt_at = 'infinity',
    attempts_count = least(t.attempts_count, 9223372036854775806) + 1, last_attempt_at = clock_timestamp(),
    headers = coalesce(t.headers, '{}'::jsonb) || jsonb_build_object('x-outbox-failure', m.reason)
from (
    select p.place, d.reason
    from unnest(:ids::bigint[], :tokens::uuid[], :reasons::text[]) as d (id, token, reason)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        for update
    ) p
) m
where t.ctid = m.place
returning t.id

-- name: renew
-- Leases whose token stands, and whether each began anew: a row that a transaction holds is passed over, as claims do.
-- Of a message with a key, a lease that has run out does not begin anew, also where nobody has taken it: the message in
-- front of it may have been taken, and then this one must wait. The time counts at which its row is locked, those in
-- front first: whoever claims them meanwhile has locked the first, and looked at their leases before that.
with standing as materialized (
    select m.id, m.place, d.ttl
    from unnest(:ids::bigint[], :tokens::uuid[], :ttls::float8[]) as d (id, token, ttl)
    cross join lateral (
        select o.id, o.ctid as place
        from {table} o
        where o.id = d.id and o.acquired_token = d.token
        limit 1
    ) m
), held as materialized (
    select s.id, l.place, l.key is null or l.acquired_at >= clock_timestamp() - make_interval(secs => s.ttl) as is_alive
    from (select * from standing order by id) s
    cross join lateral (
        select t.ctid as place, t.key, t.acquired_at
        from {table} t
        where t.ctid = s.place and t.acquired_token = any (:tokens::uuid[])
        for update skip locked
    ) l
), renewed as (
    update {table} o
    set acquired_at = now()
    where o.ctid = any (array(select h.place from held h where h.is_alive))
    returning o.id
)
select s.id, s.id = any (array(select r.id from renewed r)) as is_renewed,
       s.id = any (array(select h.id from held h where not h.is_alive)) as has_run_out
from standing s

-- name: remains
-- Which of these messages are still in the table, and whether somebody holds them.
select o.id, o.acquired_token is not null as is_held
from unnest(:ids::bigint[]) as d (id)
cross join lateral (select t.id, t.acquired_token from {table} t where t.id = d.id limit 1) o
