-- name: blocked
-- The keys of some spans that wait for a message of theirs: its state, when it is due, and how many wait.
-- In the order of an index that has nothing parked in it: a million of those cost nothing here.
select distinct on (a.slot, a.key) a.key, a.slot, a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end as due_in,
       count(*) over (partition by a.slot, a.key) as waiting
from unnest(:los::smallint[], :his::smallint[]) s (lo, hi)
join {deferred} a on a.slot between s.lo and s.hi
where a.consumer_group = :group::text and a.uri = :uri::text and a.state <> 'parked'
order by a.slot, a.key, a.tick, a.position

-- name: blocked_or_parked
-- As blocked, where a parked message blocks its key too.
select distinct on (a.key) a.key, a.slot, a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end as due_in,
       count(*) over (partition by a.key) as waiting
from {deferred} a
join unnest(:los::smallint[], :his::smallint[]) s (lo, hi) on a.slot between s.lo and s.hi
where a.consumer_group = :group::text and a.uri = :uri::text
order by a.key, a.tick, a.position

-- name: fetch_waiting
-- The messages that wait under some keys of these slots, in order; without parked ones, which are passed by.
-- Those that cannot be read come without their content.
select a.tick, l.position, l.uri, l.slot,
       case when l.position <> all (:unreadable::bigint[]) then l.payload::text end as payload,
       case when l.position <> all (:unreadable::bigint[]) then l.body end as body,
       case when l.position <> all (:unreadable::bigint[]) then l.metadata::text end as metadata, l.event_id,
       least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at, l.transaction_id, a.attempts,
       case when a.first_attempt_at is not null
           then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end as due_in
from unnest(:keys::text[], :slots::smallint[]) k (key, slot)
cross join lateral (
    select o.* from {deferred} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.slot = k.slot and o.key = k.key
      and o.state <> 'parked'
    order by o.tick, o.position
    limit :limit::int
) a
join {log} l on l.position = a.position
order by a.tick, a.position

-- name: fetch_deferred
-- The messages that wait under some keys, in order, the parked ones among them.
-- Those that cannot be read come without their content.
select a.tick, l.position, l.uri, l.slot,
       case when l.position <> all (:unreadable::bigint[]) then l.payload::text end as payload,
       case when l.position <> all (:unreadable::bigint[]) then l.body end as body,
       case when l.position <> all (:unreadable::bigint[]) then l.metadata::text end as metadata, l.event_id,
       least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at, l.transaction_id, a.attempts,
       case when a.first_attempt_at is not null
           then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       a.state,
       case when a.due is not null
           then extract(epoch from least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') - clock_timestamp())::float8 end as due_in
from unnest(:keys::text[]) k (key)
cross join lateral (
    select o.* from {deferred} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.key = k.key
    order by o.tick, o.position
    limit :limit::int
) a
join {log} l on l.position = a.position
order by a.tick, a.position

-- name: drop_missed
-- Ends messages that wait under some keys and are in the log no more; parked ones stay, as a record.
delete from {deferred} a
where a.consumer_group = :group::text and a.uri = :uri::text and a.key = any (:keys::text[]) and a.state <> 'parked'
  and not exists (select from {log} l where l.position = a.position)
returning a.position

-- name: settle_deferred
-- Ends or puts off messages that wait, if their spans are still ours; returns those that were.
with held as materialized (
    select o.lo, o.hi
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[]) s (lo, epoch) on o.lo = s.lo and o.epoch = s.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update of o
), gone as (
    delete from {deferred} a using held h
    where a.consumer_group = :group::text and a.uri = :uri::text and a.position = any (:done::bigint[])
      and a.slot between h.lo and h.hi
    returning a.position
), kept as (
    update {deferred} a
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

-- name: list_deferred
-- What is deferred by all groups, by group and position, behind an entry; of one state, key or type of error, or of all.
select a.consumer_group, a.uri, a.position, a.tick, a.slot, a.key, a.state, a.attempts,
       case when a.due is not null then least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') end as due,
       case when a.first_attempt_at is not null
           then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       least(greatest(a.updated_at, '0002-01-01Z'), '9998-12-31Z') as updated_at, a.error_type, a.error_message, a.traceback,
       l.payload::text, l.body, l.metadata::text,
       case when l.created_at is not null
           then least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z') end as created_at,
       l.transaction_id
from {deferred} a
left join {log} l on l.position = a.position
where (a.consumer_group, a.uri, a.position) > (:after_group::text, :after_uri::text, :after_position::bigint)
  and (:uri::text is null or a.uri = :uri::text)
  and (:state::text is null or a.state = :state::text) and (:key::text is null or a.key = :key::text)
  and (:error_type::text is null or a.error_type = :error_type::text)
order by a.consumer_group, a.uri, a.position
limit :limit::int

-- name: list_deferred_of_group
-- As list_deferred, of one group: walks over nothing of the others.
select a.consumer_group, a.uri, a.position, a.tick, a.slot, a.key, a.state, a.attempts,
       case when a.due is not null then least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') end as due,
       case when a.first_attempt_at is not null
           then least(greatest(a.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       least(greatest(a.updated_at, '0002-01-01Z'), '9998-12-31Z') as updated_at, a.error_type, a.error_message, a.traceback,
       l.payload::text, l.body, l.metadata::text,
       case when l.created_at is not null
           then least(greatest(l.created_at, '0002-01-01Z'), '9998-12-31Z') end as created_at,
       l.transaction_id
from {deferred} a
left join {log} l on l.position = a.position
where a.consumer_group = :group::text and (a.uri, a.position) > (:after_uri::text, :after_position::bigint)
  and (:uri::text is null or a.uri = :uri::text)
  and (:state::text is null or a.state = :state::text) and (:key::text is null or a.key = :key::text)
  and (:error_type::text is null or a.error_type = :error_type::text)
order by a.uri, a.position
limit :limit::int

-- name: retry_deferred
-- Lets parked messages run again, as if for the first time.
update {deferred} a
set state = 'retry', attempts = 0, due = clock_timestamp(), first_attempt_at = null, updated_at = clock_timestamp()
where a.consumer_group = :group::text and a.uri = :uri::text and a.state = 'parked'
  and (:positions::bigint[] is null or a.position = any (:positions::bigint[]))
returning a.position

-- name: drop_deferred
-- Ends messages that were deferred, unhandled.
delete from {deferred} a
where a.consumer_group = :group::text and a.uri = :uri::text and a.position = any (:positions::bigint[])
  and (:any_state::boolean or a.state = 'parked')
returning a.position
