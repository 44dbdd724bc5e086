-- name: blocked
-- The keys of some spans that wait for a message of theirs: its state, when it is due, and how many wait.
select distinct on (a.key) a.key, a.slot, a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end,
       count(*) over (partition by a.key)
from {aside} a
join unnest(:los::smallint[], :his::smallint[]) s (lo, hi) on a.slot between s.lo and s.hi
where a.consumer_group = :group::text and a.uri = :uri::text and (:hold::boolean or a.state <> 'parked')
order by a.key, a.tick, a.position

-- name: fetch_aside
-- The messages that wait under some keys, in order.
select a.tick, l.position, l.uri, l.slot, l.payload::text, l.body, l.metadata::text, l.event_id,
       least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z'), l.transaction_id, a.attempts,
       case when a.first_attempt_at is not null then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end, a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end
from unnest(:keys::text[]) k (key)
cross join lateral (
    select o.* from {aside} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.key = k.key
      and (:hold::boolean or o.state <> 'parked')
    order by o.tick, o.position
    limit :limit::int
) a
join {log} l on l.position = a.position
order by a.tick, a.position

-- name: drop_missed
-- Ends messages that wait under some keys and are in the log no more; parked ones stay, as a record.
delete from {aside} a
where a.consumer_group = :group::text and a.uri = :uri::text and a.key = any (:keys::text[]) and a.state <> 'parked'
  and not exists (select from {log} l where l.position = a.position)
returning a.position

-- name: settle_aside
-- Ends or puts off messages that wait, if their spans are still ours; returns those that were.
with held as materialized (
    select o.lo, o.hi
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[]) s (lo, epoch) on o.lo = s.lo and o.epoch = s.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update of o
), gone as (
    delete from {aside} a using held h
    where a.consumer_group = :group::text and a.uri = :uri::text and a.position = any (:done::bigint[])
      and a.slot between h.lo and h.hi
    returning a.position
), kept as (
    update {aside} a
    set state = f.state, attempts = f.attempts, due = clock_timestamp() + make_interval(secs => f.delay),
        first_attempt_at = coalesce(a.first_attempt_at, case when f.attempts > 0 then clock_timestamp() end),
        updated_at = clock_timestamp(),
        error_type = f.error_type, error_message = f.error_message, traceback = f.traceback
    from held h, unnest(:positions::bigint[], :states::text[], :attempts::int[], :delays::float8[], :types::text[],
                        :messages::text[], :tracebacks::text[])
                 f (position, state, attempts, delay, error_type, error_message, traceback)
    where a.consumer_group = :group::text and a.uri = :uri::text and a.position = f.position
      and a.slot between h.lo and h.hi
    returning a.position
)
select position from gone
union all
select position from kept

-- name: list_aside
-- What is set aside, in order; of one group and state, or of all.
select a.consumer_group, a.uri, a.position, a.tick, a.slot, a.key, a.state, a.attempts,
       case when a.due is not null then least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') end,
       case when a.first_attempt_at is not null then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
       least(greatest(a.updated_at, '0002-01-01Z'), '9998-12-31Z'), a.error_type, a.error_message, a.traceback,
       l.payload::text, l.body, l.metadata::text,
       case when l.created_at is not null then least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z') end, l.transaction_id
from {aside} a
left join {log} l on l.position = a.position
where (:group::text is null or a.consumer_group = :group::text) and (:uri::text is null or a.uri = :uri::text)
  and (:state::text is null or a.state = :state::text) and (:key::text is null or a.key = :key::text)
order by a.tick, a.position
limit :limit::int

-- name: retry_aside
-- Lets parked messages run again, as if for the first time.
update {aside} a
set state = 'retry', attempts = 0, due = clock_timestamp(), first_attempt_at = null, updated_at = clock_timestamp()
where a.consumer_group = :group::text and a.uri = :uri::text and a.state = 'parked'
  and (:positions::bigint[] is null or a.position = any (:positions::bigint[]))
returning a.position

-- name: drop_aside
-- Ends messages that were set aside, unhandled.
delete from {aside} a
where a.consumer_group = :group::text and a.uri = :uri::text and a.position = any (:positions::bigint[])
  and (:any_state::boolean or a.state = 'parked')
returning a.position
