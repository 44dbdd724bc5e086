-- name: publish_one
-- Inserts one message and returns its id.
insert into {table} (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id)
values (:queue::text, :payload::bytea, :headers::text::jsonb, statement_timestamp(),
        coalesce(:due_at::timestamptz, statement_timestamp() + make_interval(secs => :due_in::float8)),
        :key::text, :priority::smallint, coalesce(:message_id::uuid, gen_random_uuid()))
returning id

-- name: publish_alike
-- Inserts messages that differ in body and id only, in the order given, and returns their ids in that order.
insert into {table} (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id)
select :queue::text, m.payload, s.headers, statement_timestamp(),
       coalesce(:due_at::timestamptz, statement_timestamp() + make_interval(secs => :due_in::float8)),
       :key::text, :priority::smallint, m.message_id
from (select :headers::text::jsonb as headers offset 0) s
cross join unnest(:payloads::bytea[], :message_ids::uuid[]) with ordinality as m (payload, message_id, place)
order by m.place
returning id

-- name: publish_many
-- Inserts messages in the order given, and returns their ids in that order.
insert into {table} (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id)
select m.queue, m.payload, m.headers::jsonb, statement_timestamp(),
       coalesce(m.due_at, statement_timestamp() + make_interval(secs => m.due_in)),
       m.key, m.priority, coalesce(m.message_id, gen_random_uuid())
from unnest(:queues::text[], :payloads::bytea[], :headers::text[], :due_ats::timestamptz[], :due_ins::float8[],
            :keys::text[], :priorities::smallint[], :message_ids::uuid[])
     with ordinality
     as m (queue, payload, headers, due_at, due_in, key, priority, message_id, place)
order by m.place
returning id

-- name: publish_new_timers
-- As publish_timers, where every timer_id that is taken is left: needs no right to change rows.
insert into {table} (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id, timer_id)
select m.queue, m.payload, m.headers::jsonb, statement_timestamp(),
       coalesce(m.due_at, statement_timestamp() + make_interval(secs => m.due_in)),
       m.key, m.priority, coalesce(m.message_id, gen_random_uuid()), m.timer_id
from unnest(:queues::text[], :payloads::bytea[], :headers::text[], :due_ats::timestamptz[], :due_ins::float8[],
            :keys::text[], :priorities::smallint[], :message_ids::uuid[], :timer_ids::text[])
     with ordinality
     as m (queue, payload, headers, due_at, due_in, key, priority, message_id, timer_id, place)
order by m.place
on conflict (queue, timer_id) where timer_id is not null do nothing
returning id, queue, timer_id

-- name: publish_timers
-- Inserts messages of which some have a timer_id; a taken timer_id is left, replaced, or replaced if that is later.
with m as materialized (
    select u.queue, u.payload, u.headers::jsonb as headers,
           coalesce(u.due_at, statement_timestamp() + make_interval(secs => u.due_in)) as due,
           u.key, u.priority, coalesce(u.message_id, gen_random_uuid()) as message_id, u.timer_id, u.conflict, u.place
    from unnest(:queues::text[], :payloads::bytea[], :headers::text[], :due_ats::timestamptz[], :due_ins::float8[],
                :keys::text[], :priorities::smallint[], :message_ids::uuid[], :timer_ids::text[], :conflicts::text[])
         with ordinality
         as u (queue, payload, headers, due_at, due_in, key, priority, message_id, timer_id, conflict, place)
), ignoring as (
    insert into {table} (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id, timer_id)
    select queue, payload, headers, statement_timestamp(), due, key, priority, message_id, timer_id
    from m where conflict = 'ignore' order by place
    on conflict (queue, timer_id) where timer_id is not null do nothing
    returning id, queue, timer_id
), extending as (
    insert into {table} as t
        (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id, timer_id)
    select queue, payload, headers, statement_timestamp(), due, key, priority, message_id, timer_id
    from m where conflict = 'extend' order by place
    on conflict (queue, timer_id) where timer_id is not null do update
        set next_attempt_at = greatest(t.next_attempt_at, excluded.next_attempt_at),
            payload = case when excluded.next_attempt_at > t.next_attempt_at then excluded.payload else t.payload end,
            headers = case when excluded.next_attempt_at > t.next_attempt_at then excluded.headers else t.headers end,
            created_at = case when excluded.next_attempt_at > t.next_attempt_at then excluded.created_at else t.created_at end,
            key = case when excluded.next_attempt_at > t.next_attempt_at then excluded.key else t.key end,
            priority = case when excluded.next_attempt_at > t.next_attempt_at then excluded.priority else t.priority end,
            message_id = case when excluded.next_attempt_at > t.next_attempt_at then excluded.message_id else t.message_id end,
            attempts_count = case when excluded.next_attempt_at > t.next_attempt_at then 0 else t.attempts_count end,
            deliveries_count = case when excluded.next_attempt_at > t.next_attempt_at then 0 else t.deliveries_count end,
            first_attempt_at = case when excluded.next_attempt_at > t.next_attempt_at then null else t.first_attempt_at end,
            last_attempt_at = case when excluded.next_attempt_at > t.next_attempt_at then null else t.last_attempt_at end
        where t.acquired_token is null
    returning id, queue, timer_id
), replacing as (
    insert into {table} as t
        (queue, payload, headers, created_at, next_attempt_at, key, priority, message_id, timer_id)
    select queue, payload, headers, statement_timestamp(), due, key, priority, message_id, timer_id
    from m where conflict = 'replace' order by place
    on conflict (queue, timer_id) where timer_id is not null do update
        set payload = excluded.payload, headers = excluded.headers, created_at = excluded.created_at,
            next_attempt_at = excluded.next_attempt_at, key = excluded.key, priority = excluded.priority,
            message_id = excluded.message_id, attempts_count = 0, deliveries_count = 0,
            first_attempt_at = null, last_attempt_at = null
        where t.acquired_token is null
    returning id, queue, timer_id
)
select id, queue, timer_id from ignoring
union all
select id, queue, timer_id from extending
union all
select id, queue, timer_id from replacing

-- name: notify
-- Wakes the workers of this table.
select pg_notify(:channel, :payload)

-- name: notify_both
-- Wakes the workers of this table, and those of 0.19 by the names of their queues, while the index of theirs exists.
select pg_notify(:channel::text, notice.payload)
from unnest(case when to_regclass(:former_index::text) is null then array[:payload::text]
                 else (:opening::text || substr(:payload::text, 2)) || :names::text[] end) notice (payload)

-- name: cancel_timer
-- Deletes a timer that no worker holds; whether others of its key waited for it.
delete from {table}
where queue = :queue and timer_id = :timer_id::text and acquired_token is null
  -- Always true, and dear for a planner that does not know the values: so it keeps no plan from when the table was empty.
  and (select count(*) = 1
       from generate_series(length(:timer_id::text), length(:timer_id::text)) a
       cross join generate_series(length(:timer_id::text), length(:timer_id::text)) b)
returning key is not null
          and (deliveries_count > 0 or last_attempt_at is not null or next_attempt_at <= now()) as held_its_key

-- name: unprocessed_of_queue
-- The first messages of a queue to fall due (low priorities first), by id, leased ones included; leases nothing.
select n.id, n.queue, n.payload, n.headers, n.attempts_count, n.deliveries_count,
       least(greatest(n.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
       least(greatest(n.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
       case when n.first_attempt_at is not null
           then least(greatest(n.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       case when n.last_attempt_at is not null
           then least(greatest(n.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
       case when n.acquired_at is not null
           then least(greatest(n.acquired_at, '0002-01-01Z'), '9998-12-31Z') end as acquired_at,
       n.acquired_token, n.timer_id, n.key, n.priority, n.message_id
from (
    select *
    from (
        (
            select o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count, o.created_at,
                   o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at, o.acquired_token,
                   o.timer_id, o.key, o.priority, o.message_id
            from {table} o
            where o.queue = :queue and o.key is null
              and o.priority between -32768 and 32767 -- every one: so that the planner takes the index in due order
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :limit
        )
        union all
        (
            select o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count, o.created_at,
                   o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at, o.acquired_token,
                   o.timer_id, o.key, o.priority, o.message_id
            from {table} o
            where o.queue = :queue and o.key is not null
              and o.priority between -32768 and 32767 -- every one: so that the planner takes the index in due order
            order by o.queue, o.priority, o.next_attempt_at, o.id
            limit :limit
        )
    ) m
    order by m.priority, m.next_attempt_at, m.id
    limit :limit
) n
order by n.id

-- name: unprocessed
-- Messages of every queue, oldest first, leased ones included; leases nothing.
select o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
       least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
       least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
       case when o.first_attempt_at is not null
           then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
       case when o.last_attempt_at is not null
           then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
       case when o.acquired_at is not null
           then least(greatest(o.acquired_at, '0002-01-01Z'), '9998-12-31Z') end as acquired_at,
       o.acquired_token, o.timer_id, o.key, o.priority, o.message_id
from {table} o
where o.queue <> '$paused'
order by o.id
limit :limit
