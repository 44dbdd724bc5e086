-- name: pause
-- Pauses a queue for every process until it is resumed.
insert into {table} (queue, timer_id, payload, next_attempt_at)
values ('$paused', :queue, '', 'infinity')
on conflict (queue, timer_id) where timer_id is not null do nothing
returning id

-- name: resume
-- Ends the pause of a queue.
delete from {table} where queue = '$paused' and timer_id = :queue
returning id

-- name: paused
-- The queues that are paused.
select timer_id from {table} where queue = '$paused' and timer_id is not null order by timer_id

-- name: last_id
-- The last id drawn from the table's sequence, read without touching the table.
select pg_sequence_last_value(pg_get_serial_sequence(:table, 'id')::regclass)

-- name: ping
-- Answers if the server does.
select 1
