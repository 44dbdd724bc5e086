-- name: pause
-- Pauses a queue for every process until it is resumed.
-- The row holds a lease: whoever may only insert messages cannot write one, and a row without it pauses nothing.
insert into {table} as t (queue, timer_id, payload, next_attempt_at, acquired_token, acquired_at)
values ('$paused', :queue, '', 'infinity', gen_random_uuid(), now())
on conflict (queue, timer_id) where timer_id is not null do update
    set acquired_token = excluded.acquired_token, acquired_at = excluded.acquired_at
    where t.acquired_token is null
returning id

-- name: resume
-- Ends the pause of a queue.
with gone as (
    delete from {table} where queue = '$paused' and timer_id = :queue returning id, acquired_token
)
select id from gone where acquired_token is not null

-- name: paused
-- The queues that are paused.
select timer_id from {table}
where queue = '$paused' and timer_id is not null and acquired_token is not null
order by timer_id

-- name: last_id
-- The last id drawn from the table's sequence, its name, and whether we may read it; touches no table.
select case when may.read then pg_sequence_last_value(s.name) end as last, s.name::text as sequence, may.read as may_read
from (select pg_get_serial_sequence(:table, 'id')::regclass as name offset 0) s
cross join lateral (select has_sequence_privilege(s.name, 'usage, select') as read) may

-- name: ping
-- Answers if the server does.
select 1

-- name: known_queue
-- A row, if there is a message, a dead letter or a pause of the queue; a few descents, whatever is in the table.
select 1
where exists (select 1 from {table} where queue = :queue and key is null)
   or exists (select 1 from {table} where queue = :queue and key is not null)
   or exists (select 1 from {table} where queue = '$paused' and timer_id = :queue
              and acquired_token is not null)
   /*if dead*/or exists (select 1 from {dead} where queue = :queue)/*end*/

-- name: queues
-- Names of the queues that have messages, dead letters or a pause, up to a limit of each; a descent for each name.
with recursive keyless (queue) as (
    (select queue from {table} where key is null order by queue limit 1)
    union all
    select (select each.queue from {table} as each where each.key is null and each.queue > keyless.queue
            order by each.queue limit 1)
    from keyless where keyless.queue is not null
), keyed (queue) as (
    (select queue from {table} where key is not null order by queue limit 1)
    union all
    select (select each.queue from {table} as each where each.key is not null and each.queue > keyed.queue
            order by each.queue limit 1)
    from keyed where keyed.queue is not null
)
/*if dead*/, dead (queue) as (
    (select queue from {dead} order by queue limit 1)
    union all
    select (select each.queue from {dead} as each where each.queue > dead.queue order by each.queue limit 1)
    from dead where dead.queue is not null
)/*end*/
select found.queue from (
    (select queue from keyless limit :limit)
    union (select queue from keyed limit :limit)
    union (select timer_id from {table} where queue = '$paused' and timer_id is not null
           and acquired_token is not null limit :limit)
    /*if dead*/union (select queue from dead limit :limit)/*end*/
) as found
where found.queue is not null and found.queue <> '$paused'
order by 1
