-- name: claim
-- Leases up to a quota of due keyless messages in each lane, oldest first, from just above the lane's floor.
with lane as materialized (
    select l.queue, l.priority, l.quota, l.ttl, coalesce(l.floor_at, '-infinity') as floor_at, l.floor_id
    from unnest(:queues::text[], :priorities::smallint[], :floor_ats::timestamptz[], :floor_ids::bigint[],
                :quotas::int[], :ttls::float8[])
         as l (queue, priority, floor_at, floor_id, quota, ttl)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = l.queue and p.acquired_token is not null)
), picked as materialized (
    select m.place
    from lane l
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.queue = l.queue and o.priority = l.priority and o.key is null
          and (o.next_attempt_at, o.id) > (l.floor_at, l.floor_id)
          and o.next_attempt_at <= now()
          and (o.acquired_token is null or o.acquired_at < now() - make_interval(secs => l.ttl)
               or o.acquired_token = any (:unheard::uuid[]))
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit l.quota
        for update skip locked
    ) m
), taken as (
    update {table} o
    set acquired_token = :token::uuid, acquired_at = now(),
        -- A claim whose answer was lost delivered nothing.
        deliveries_count = least(o.deliveries_count, 9223372036854775806)
                           + case when o.acquired_token = any (:unheard::uuid[]) then 0 else 1 end
    where o.ctid = any (array(select place from picked))
    returning o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
              o.timer_id, o.key, o.priority, o.message_id
)
select t.*, now() as acquired_at, null::bigint as next_id
from (values (1)) as always (one)
left join taken t on true

-- name: find_lanes
-- The places of those lanes that have a message to claim, or a due one with a key, above the floor, and the time.
-- Locks nothing.
with lane as materialized (
    select l.n, l.queue, l.priority, l.keyed, coalesce(l.floor_at, '-infinity') as floor_at, l.floor_id
    from unnest(:queues::text[], :priorities::smallint[], :keyed::boolean[], :floor_ats::timestamptz[],
                :floor_ids::bigint[])
         with ordinality as l (queue, priority, keyed, floor_at, floor_id, n)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = l.queue and p.acquired_token is not null)
)
select now() as server_now, m.n
from (values (1)) as always (one)
left join (
    select l.n
    from lane l
    where case when l.keyed
        then (select true from {table} o
              where o.queue = l.queue and o.priority = l.priority and o.key is not null
                and (o.next_attempt_at, o.id) > (l.floor_at, l.floor_id)
                and o.next_attempt_at <= now()
              order by o.queue, o.priority, o.next_attempt_at, o.id limit 1)
        else (select true from {table} o
              where o.queue = l.queue and o.priority = l.priority and o.key is null
                and (o.next_attempt_at, o.id) > (l.floor_at, l.floor_id)
                and o.next_attempt_at <= now()
                and (o.acquired_token is null or o.acquired_at < now() - make_interval(secs => :ttl)
                     or o.acquired_token = any (:unheard::uuid[]))
              order by o.queue, o.priority, o.next_attempt_at, o.id limit 1)
    end
) m on true

-- name: claim_found
-- Leases keyless messages that a scan has found, by id, where they can still be claimed.
with picked as materialized (
    select m.place
    from unnest(:ids::bigint[], :queues::text[], :ttls::float8[]) as d (id, queue, ttl)
    cross join lateral (
        select o.ctid as place
        from {table} o
        where o.id = d.id and o.queue = d.queue and o.key is null
          and o.next_attempt_at <= now()
          and (o.acquired_token is null or o.acquired_at < now() - make_interval(secs => d.ttl)
               or o.acquired_token = any (:unheard::uuid[]))
          and not exists (select from {table} p
                          where p.queue = '$paused' and p.timer_id = d.queue and p.acquired_token is not null)
        for update skip locked
    ) m
), taken as (
    update {table} o
    set acquired_token = :token::uuid, acquired_at = now(),
        deliveries_count = least(o.deliveries_count, 9223372036854775806)
                           + case when o.acquired_token = any (:unheard::uuid[]) then 0 else 1 end
    where o.ctid = any (array(select place from picked))
    returning o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
              o.timer_id, o.key, o.priority, o.message_id
)
select t.*, now() as acquired_at, null::bigint as next_id
from taken t

-- name: exists
-- The id of a message, if there is one.
select o.id from {table} o where o.id = :id

-- name: set_apart
-- Puts a message out of reach of every claim where nobody holds it, without reading its content.
update {table} o
set next_attempt_at = 'infinity', acquired_token = null, acquired_at = null, last_attempt_at = clock_timestamp(),
    headers = case when :reason::text is null then o.headers
                   else coalesce(o.headers, '{}'::jsonb) || jsonb_build_object('x-outbox-failure', :reason::text) end
where o.id = :id
  and (o.acquired_token is null or o.acquired_at < now() - make_interval(secs => :ttl)
       or o.acquired_token = any (:unheard::uuid[]))
returning o.id
