-- name: frontier
-- The newest dead letter: what dies later has a higher id and is not part of a selection made now.
select coalesce(max(id), 0) from {dead}

-- name: count_dead
-- How many dead letters a selection has.
select count(*)
from {dead}
where id <= :frontier
  and (:ids::bigint[] is null or id = any (:ids::bigint[]))
  and (:queue::text is null or queue = :queue::text)
  and (:key::text is null or key = :key::text)
  and (:reason::text is null or failure_reason = :reason::text)
  and (:error_type::text is null or error_type = :error_type::text)
  and (:since::timestamptz is null or failed_at >= :since::timestamptz)
  and (:until::timestamptz is null or failed_at < :until::timestamptz)

-- name: highest_dead
-- The highest id that a selection would bring back, the last one drawn, the sequence, and whether it may be set.
-- Ids that no sequence will ever reach do not count: behind the highest of all there is none left to draw.
select h.top, case when may.use then coalesce(pg_sequence_last_value(s.name), 0) end as last, s.name::text as sequence,
       may.set as may_set
from (
    select max(original_id) as top
    from {dead}
    where id <= :frontier and original_id < 4611686018427387904
      and (:ids::bigint[] is null or id = any (:ids::bigint[]))
      and (:queue::text is null or queue = :queue::text)
      and (:key::text is null or key = :key::text)
      and (:reason::text is null or failure_reason = :reason::text)
      and (:error_type::text is null or error_type = :error_type::text)
      and (:since::timestamptz is null or failed_at >= :since::timestamptz)
      and (:until::timestamptz is null or failed_at < :until::timestamptz)
) h
cross join (select pg_get_serial_sequence(:table, 'id')::regclass as name) s
cross join lateral (
    select has_sequence_privilege(s.name, 'usage') as use, has_sequence_privilege(s.name, 'update') as set
) may

-- name: draw_ids
-- Draws so many ids that nobody will use, and returns the last.
select max(nextval(:sequence::text::regclass)) from generate_series(1, :count)

-- name: set_last_id
-- Moves the sequence far ahead: it must not be near, where others draw from it meanwhile.
select setval(:sequence::text::regclass, :last)

-- name: list_dead
-- Dead letters of a selection, newest first.
select id, original_id, message_id, queue, payload, headers::text, key, priority, timer_id, attempts_count,
       deliveries_count, least(greatest(created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
       case when first_attempt_at is not null
           then least(greatest(first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       case when last_attempt_at is not null
           then least(greatest(last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
       least(greatest(failed_at, '0002-01-01Z'), '9998-12-31Z') as failed_at, failure_reason, last_exception,
       error_type, error_message, traceback
from {dead}
where id < :before
  and (:ids::bigint[] is null or id = any (:ids::bigint[]))
  and (:queue::text is null or queue = :queue::text)
  and (:key::text is null or key = :key::text)
  and (:reason::text is null or failure_reason = :reason::text)
  and (:error_type::text is null or error_type = :error_type::text)
  and (:since::timestamptz is null or failed_at >= :since::timestamptz)
  and (:until::timestamptz is null or failed_at < :until::timestamptz)
order by id desc
limit :limit

-- name: group_dead
-- Dead letters counted by queue, reason and type of error, with the first and the last time of each.
select queue, failure_reason, error_type, count(*) as letters,
       least(greatest(min(failed_at), '0002-01-01Z'), '9998-12-31Z') as first_failed_at,
       least(greatest(max(failed_at), '0002-01-01Z'), '9998-12-31Z') as last_failed_at
from {dead}
where :queue::text is null or queue = :queue::text
group by queue, failure_reason, error_type
order by count(*) desc, queue, failure_reason, error_type

-- name: group_selected
-- Dead letters of a selection, counted by queue, reason and type of error, with the first and the last time of each.
select queue, failure_reason, error_type, count(*) as letters,
       least(greatest(min(failed_at), '0002-01-01Z'), '9998-12-31Z') as first_failed_at,
       least(greatest(max(failed_at), '0002-01-01Z'), '9998-12-31Z') as last_failed_at
from {dead}
where id <= :frontier
  and (:ids::bigint[] is null or id = any (:ids::bigint[]))
  and (:queue::text is null or queue = :queue::text)
  and (:key::text is null or key = :key::text)
  and (:reason::text is null or failure_reason = :reason::text)
  and (:error_type::text is null or error_type = :error_type::text)
  and (:since::timestamptz is null or failed_at >= :since::timestamptz)
  and (:until::timestamptz is null or failed_at < :until::timestamptz)
group by queue, failure_reason, error_type
order by count(*) desc, queue, failure_reason, error_type

-- name: replay
-- Puts the next slice of a selection back into the outbox under the messages' own ids, oldest message first.
-- Of several dead letters under one id, as a table that was made anew leaves them, one goes back and the others stay.
with chosen as materialized (
    select *
    from {dead}
    where id <= :frontier
      and (:after_original::bigint is null or (original_id, id) > (:after_original::bigint, :after_id::bigint))
      and (:ids::bigint[] is null or id = any (:ids::bigint[]))
      and (:queue::text is null or queue = :queue::text)
      and (:key::text is null or key = :key::text)
      and (:reason::text is null or failure_reason = :reason::text)
      and (:error_type::text is null or error_type = :error_type::text)
      and (:since::timestamptz is null or failed_at >= :since::timestamptz)
      and (:until::timestamptz is null or failed_at < :until::timestamptz)
    order by original_id, id
    limit :slice
    for update
), single as materialized (
    select distinct on (original_id) * from chosen order by original_id, id
), back as (
    insert into {table} (id, message_id, queue, payload, headers, key, priority, timer_id, created_at, next_attempt_at)
    select original_id, message_id, queue, payload, headers, key, priority, timer_id, created_at, statement_timestamp()
    from single
    order by original_id
    on conflict do nothing
    returning id
), replayed as materialized (
    select s.id from single s where s.original_id = any (array(select id from back))
), gone as (
    delete from {dead} where id = any (array(select id from replayed))
)
select c.id, c.original_id, c.queue, c.key is not null as is_keyed, c.priority,
       c.id = any (array(select id from replayed)) as is_back
from chosen c
order by c.original_id, c.id

-- name: edit_dead
-- Changes the body or the headers of a dead letter.
update {dead}
set payload = coalesce(:payload::bytea, payload), headers = coalesce(:headers::text::jsonb, headers)
where id = :id
returning id

-- name: purge_dead
-- Deletes the next slice of a selection for good; of each its queue, and whether it had a key.
delete from {dead}
where id = any (array(
    select id
    from {dead}
    where id <= :frontier
      and (:ids::bigint[] is null or id = any (:ids::bigint[]))
      and (:queue::text is null or queue = :queue::text)
      and (:key::text is null or key = :key::text)
      and (:reason::text is null or failure_reason = :reason::text)
      and (:error_type::text is null or error_type = :error_type::text)
      and (:since::timestamptz is null or failed_at >= :since::timestamptz)
      and (:until::timestamptz is null or failed_at < :until::timestamptz)
    order by id
    limit :slice
))
returning queue, key is not null as is_keyed

-- name: lock_janitor
-- Begins to delete old dead letters, unless another process is about it; a row if so.
select 1 where pg_try_advisory_xact_lock(hashtextextended(:table::text, 1871))

-- name: purge_old
-- Deletes, of the next dead letters, those that failed long ago: how many went, how many were read, and the last.
with slice as materialized (
    select d.id, d.failed_at < clock_timestamp() - make_interval(secs => :age::float8) as is_old
    from {dead} d
    where d.id > :after::bigint
    order by d.id
    limit :limit::int
), gone as (
    delete from {dead} where id = any (array(select s.id from slice s where s.is_old)) returning 1
)
select (select count(*) from gone) as gone, (select count(*) from slice) as seen,
       (select max(s.id) from slice s) as last
