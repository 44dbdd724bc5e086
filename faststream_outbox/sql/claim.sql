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
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z'),
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z'),
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              o.timer_id, o.key, o.priority, o.message_id
)
select t.*, now(), null::bigint
from (values (1)) as always (one)
left join taken t on true

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
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z'),
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z'),
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              o.timer_id, o.key, o.priority, o.message_id
)
select t.*, now(), null::bigint
from taken t

-- name: claimable
-- Ids of keyless messages that could be claimed between two places of each lane, in due order; locks nothing.
with lane as materialized (
    select u.*, :most::int as most
    from unnest(:queues::text[], :priorities::smallint[], :from_ats::timestamptz[], :from_ids::bigint[],
                :to_ats::timestamptz[], :to_ids::bigint[], :ttls::float8[])
         with ordinality as u (queue, priority, from_at, from_id, to_at, to_id, ttl, n)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = u.queue and p.acquired_token is not null)
)
select l.n, m.id, least(greatest(m.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at
from lane l
cross join lateral (
    select o.id, o.next_attempt_at
    from {table} o
    where o.queue = l.queue and o.priority = l.priority and o.key is null
      and (o.next_attempt_at, o.id) > (coalesce(l.from_at, '-infinity'), l.from_id)
      and (o.next_attempt_at, o.id) <= (coalesce(l.to_at, 'infinity'), l.to_id)
      and o.next_attempt_at <= now()
      and (o.acquired_token is null or o.acquired_at < now() - make_interval(secs => l.ttl)
           or o.acquired_token = any (:unheard::uuid[]))
    order by o.queue, o.priority, o.next_attempt_at, o.id
    limit l.most
) m
order by l.n, m.next_attempt_at, m.id

-- name: head_of_key
-- The id of the message that a claim of a key would take first, without its content.
select o.id
from {table} o
where o.queue = :queue and o.key = :key
  and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
order by o.queue, o.key, o.id
limit 1

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

-- name: claim_keys
-- Leases, for each key, the run of its first due messages, if nobody holds any message of it.
with wanted as materialized (
    select w.*
    from unnest(:queues::text[], :keys::text[], :runs::int[], :ttls::float8[], :held_by_dead::boolean[],
                :nexts::bigint[])
         with ordinality as w (queue, key, run, ttl, held_by_dead, next, n)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = w.queue and p.acquired_token is not null)
      /*if dead*/
      and not (w.held_by_dead and exists (select from {dead} d where d.queue = w.queue and d.key = w.key))
      /*end*/
), head as materialized (
    select w.n, w.queue, w.key, m.places, m.tokens, m.ids, m.ids[w.run + 1] as next,
           least(w.run, coalesce(array_position(m.due, false) - 1, cardinality(m.ids))) as length
    from wanted w
    cross join lateral (
        select array_agg(h.place) as places, array_agg(h.acquired_token) as tokens, array_agg(h.id) as ids,
               array_agg(h.next_attempt_at <= now()) as due,
               bool_and(h.acquired_token is null or h.acquired_at < now() - make_interval(secs => w.ttl)
                        or h.acquired_token = any (:unheard::uuid[])) as is_free
        from (
            select o.ctid as place, o.id, o.acquired_token, o.acquired_at, o.next_attempt_at
            from {table} o
            where o.queue = w.queue and o.key = w.key
              and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
            order by o.queue, o.key, o.id
            limit w.run + 8
        ) h
    ) m
    where m.is_free and m.due[1]
      -- Lower ids may have appeared below a message in hand: look for a lease in the rest of the key. Whoever takes a
      -- key takes its first messages: where the one stands that was next after our own last run, nobody has any above.
      and (cardinality(m.ids) < w.run + 8 or not exists (
          select from (
              -- Ordered, so that no plan walks other keys for it.
              select x.acquired_at, x.acquired_token
              from {table} x
              where x.queue = w.queue and x.key = w.key and x.id > m.ids[cardinality(m.ids)]
                and x.id <= coalesce((
                    -- By the primary key, whatever else an index offers.
                    select t.id
                    from (select * from {table} s where s.id = w.next offset 0) t
                    where t.queue = w.queue and t.key = w.key and t.acquired_token is null and t.timer_id is null
                ), 9223372036854775807)
              order by x.queue, x.key, x.id
              offset 0
          ) y
          where y.acquired_at >= now() - make_interval(secs => w.ttl) and y.acquired_token <> all (:unheard::uuid[])
      ))
), run as materialized (
    select h.n, h.length, h.next, u.place, u.token, u.id
    from head h
    cross join lateral unnest(h.places[1:h.length], h.tokens[1:h.length], h.ids[1:h.length]) as u (place, token, id)
), taken_beyond as materialized (
    -- A claim that began before a message with a lower id appeared may be leasing the next one at this moment.
    select h.n
    from head h
    where cardinality(h.ids) > h.length
      and not exists (
          select from {table} o
          where o.ctid = h.places[h.length + 1] and o.acquired_token is not distinct from h.tokens[h.length + 1]
          for key share skip locked
      )
), locked as materialized (
    select r.n, r.place, r.id, r.length, r.next, count(*) over (partition by r.n) as held
    from run r
    cross join lateral (
        select from {table} o
        where o.ctid = r.place and o.acquired_token is not distinct from r.token
        for update skip locked
    ) l
), won as materialized (
    select l.n, l.place, l.id, l.next
    from locked l
    where l.held = l.length and l.n <> all (array(select n from taken_beyond))
), taken as (
    update {table} o
    set acquired_token = :token::uuid, acquired_at = now(),
        -- A claim whose answer was lost delivered nothing.
        deliveries_count = least(o.deliveries_count, 9223372036854775806)
                           + case when o.acquired_token = any (:unheard::uuid[]) then 0 else 1 end
    where o.ctid = any (array(select place from won))
    returning o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z'),
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z'),
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end,
              o.timer_id, o.key, o.priority, o.message_id,
              o.acquired_at,
              (array(select w.next from won w order by w.id))[
                  array_position(array(select w.id from won w order by w.id), o.id)
              ]
)
select t.* from taken t
union all
-- Free, and another claim is at it: told without a message, for both of us may have given way.
select null, h.queue, null, null, null, null, null, null, null, null, null, h.key, null, null, null, null
from head h
where h.n <> all (array(select n from won))

-- name: find_keys
-- Keys of due messages just above each keyed lane's floor, in due order, and the time; locks nothing.
select l.queue, l.priority, m.key, m.next_attempt_at, m.id, now()
from (
    select u.queue, u.priority, u.quota, coalesce(u.floor_at, '-infinity') as floor_at, u.floor_id
    from unnest(:queues::text[], :priorities::smallint[], :floor_ats::timestamptz[], :floor_ids::bigint[],
                :quotas::int[])
         as u (queue, priority, floor_at, floor_id, quota)
) l
left join lateral (
    select o.key, least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at, o.id
    from {table} o
    where o.queue = l.queue and o.priority = l.priority and o.key is not null
      and (o.next_attempt_at, o.id) > (l.floor_at, l.floor_id)
      and o.next_attempt_at <= now()
    order by o.queue, o.priority, o.next_attempt_at, o.id
    limit l.quota
) m on true

-- name: claimable_keys
-- Keys of due messages, up to so many of each lane, whose head could be claimed now, and whether a lane may have more.
with lane as materialized (
    select u.*
    from unnest(:queues::text[], :priorities::smallint[], :ttls::float8[], :held_by_dead::boolean[])
         with ordinality as u (queue, priority, ttl, held_by_dead, n)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = u.queue and p.acquired_token is not null)
), due as materialized (
    select l.n, m.key, m.is_free
    from lane l
    cross join lateral (
        select o.key, o.acquired_token is null or o.acquired_at < now() - make_interval(secs => l.ttl)
                      or o.acquired_token = any (:unheard::uuid[]) as is_free
        from {table} o
        where o.queue = l.queue and o.priority = l.priority and o.key is not null and o.next_attempt_at <= now()
        order by o.queue, o.priority, o.next_attempt_at, o.id
        limit :most::int
    ) m
)
select d.n, null::text as key, null::smallint as priority, count(*) >= :most::int as has_more
from due d
group by d.n
union all
select k.n, k.key, h.priority, false
from (select distinct d.n, d.key from due d where d.is_free) k
join lane l on l.n = k.n
cross join lateral (
    select h.priority, h.next_attempt_at, h.acquired_token, h.acquired_at
    from {table} h
    where h.queue = l.queue and h.key = k.key
      and (h.deliveries_count > 0 or h.last_attempt_at is not null or h.next_attempt_at <= now())
    order by h.queue, h.key, h.id
    limit 1
) h
where h.next_attempt_at <= now()
  and (h.acquired_token is null or h.acquired_at < now() - make_interval(secs => l.ttl)
       or h.acquired_token = any (:unheard::uuid[]))
  /*if dead*/
  and not (l.held_by_dead and exists (select from {dead} d where d.queue = l.queue and d.key = k.key))
  /*end*/

-- name: walk_keys
-- The next keys of a queue in key order after a given one, each with whether its head could be claimed now.
with recursive step (key, n) as (
    (
        select o.key, 1
        from {table} o
        where o.queue = :queue and o.key is not null and o.key > :after
          and not exists (select from {table} p
                          where p.queue = '$paused' and p.timer_id = :queue and p.acquired_token is not null)
        order by o.queue, o.key, o.id
        limit 1
    )
    union all
    select (
        select o.key
        from {table} o
        where o.queue = :queue and o.key is not null and o.key > s.key
        order by o.queue, o.key, o.id
        limit 1
    ), s.n + 1
    from step s
    where s.key is not null and s.n < :keys
)
select s.key,
       coalesce(h.claimable, false)
       /*if dead*/
       and not (:held_by_dead::boolean and exists (select from {dead} d where d.queue = :queue and d.key = s.key))
       /*end*/,
       h.priority
from step s
left join lateral (
    select h.priority, h.next_attempt_at <= now()
           and (h.acquired_token is null or h.acquired_at < now() - make_interval(secs => :ttl)
                or h.acquired_token = any (:unheard::uuid[])) as claimable
    from {table} h
    where h.queue = :queue and h.key = s.key
      and (h.deliveries_count > 0 or h.last_attempt_at is not null or h.next_attempt_at <= now())
    order by h.queue, h.key, h.id
    limit 1
) h on true
where s.key is not null

-- name: survey
-- The priorities that each queue's messages have, without and with keys.
select q.queue, k.keyed, p.priority
from unnest(:queues::text[]) as q (queue)
cross join (values (false), (true)) as k (keyed)
cross join lateral (
    with recursive step (priority) as (
        select case when k.keyed
            then (select o.priority from {table} o where o.queue = q.queue and o.key is not null
                  order by o.queue, o.priority limit 1)
            else (select o.priority from {table} o where o.queue = q.queue and o.key is null
                  order by o.queue, o.priority limit 1)
        end
        union all
        select case when k.keyed
            then (select o.priority from {table} o
                  where o.queue = q.queue and o.key is not null and o.priority > s.priority
                  order by o.queue, o.priority limit 1)
            else (select o.priority from {table} o
                  where o.queue = q.queue and o.key is null and o.priority > s.priority
                  order by o.queue, o.priority limit 1)
        end
        from step s
        where s.priority is not null
    )
    select priority from step where priority is not null
) p

-- name: next_due
-- Seconds until the first message above each lane's floor falls due, where there is one.
select l.queue, l.priority, l.keyed, extract(epoch from d.due - clock_timestamp())::float8
from unnest(:queues::text[], :priorities::smallint[], :keyed::boolean[], :floor_ats::timestamptz[])
     as l (queue, priority, keyed, floor_at)
cross join lateral (
    select case when l.keyed
        then (select o.next_attempt_at from {table} o
              where o.queue = l.queue and o.priority = l.priority and o.key is not null
                and o.next_attempt_at > coalesce(l.floor_at, '-infinity') and o.next_attempt_at < 'infinity'
              order by o.queue, o.priority, o.next_attempt_at limit 1)
        else (select o.next_attempt_at from {table} o
              where o.queue = l.queue and o.priority = l.priority and o.key is null
                and o.next_attempt_at > coalesce(l.floor_at, '-infinity') and o.next_attempt_at < 'infinity'
              order by o.queue, o.priority, o.next_attempt_at limit 1)
    end as due
) d
where d.due is not null
