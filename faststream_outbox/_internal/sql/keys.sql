-- name: claim_keys
-- Leases, for each key, the run of its first due messages, if nobody holds any message of it.
-- With each message comes: the next one, the first that was due at once, whether nothing can appear before that, and
-- how many more were seen. Leases that have run out on messages behind the run are ended first, and the key is left for
-- the next claim: their holder could still settle those messages, after the run in front of them was begun again.
with wanted as materialized (
    select w.queue, w.key, w.run, w.ttl, w.next, w.n,
           -- What is known of ids is known of one server: another one may be behind it.
           coalesce(case when pg_postmaster_start_time() = :server::timestamptz then w.floor end,
                    '-9223372036854775808') as floor
    from unnest(:queues::text[], :keys::text[], :runs::int[], :ttls::float8[], :held_by_dead::boolean[],
                :nexts::bigint[], :floors::bigint[])
         with ordinality as w (queue, key, run, ttl, held_by_dead, next, floor, n)
    where not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = w.queue and p.acquired_token is not null)
      /*if dead*/
      and not (w.held_by_dead and exists (select from {dead} d where d.queue = w.queue and d.key = w.key))
      /*end*/
), head as materialized (
    select w.n, w.queue, w.key, w.ttl, rest.is_leased, m.places, m.tokens, m.ids, m.ids[w.run + 1] as next, m.first,
           -- Timers fall due under the ids that they have, and what is replayed comes back under its own.
           coalesce(pg_postmaster_start_time() = :server::timestamptz, false) and not put_off.are_some
           /*if dead*/
           and not exists (select from {dead} d where d.queue = w.queue and d.key = w.key)
           /*end*/
               as is_certain,
           least(w.run, coalesce(array_position(m.due, false) - 1, cardinality(m.ids))) as length,
           cardinality(m.ids) as seen
    from wanted w
    -- What was due at once stands in one index by id; what was put off, by timers and retries, in two others. Of the
    -- latter those that are due or were tried are read and sorted; where they are many, all by id.
    cross join lateral (
        select exists (
            select
            from {table} o
            where o.queue = w.queue and o.key = w.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
        ) as are_some
        offset 0
    ) put_off
    cross join lateral (
        select case when put_off.are_some then (
            select count(*) >= 100
            from (
                select
                from {table} o
                where o.queue = w.queue and o.key = w.key
                  and (o.timer_id is not null or o.next_attempt_at > o.created_at)
                  and o.last_attempt_at is null and o.next_attempt_at <= now()
                order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
                limit 100
            ) d
        ) else false end as are_many
        offset 0
    ) later
    cross join lateral (
        select array_agg(h.place) as places, array_agg(h.acquired_token) as tokens, array_agg(h.id) as ids,
               array_agg(h.next_attempt_at <= now()) as due,
               bool_and(h.acquired_token is null or h.acquired_at < now() - make_interval(secs => w.ttl)
                        or h.acquired_token = any (:unheard::uuid[])) as is_free,
               count(*) filter (where not h.is_later) = w.run + 8 as has_more,
               min(h.id) filter (where not h.is_later) as first,
               max(h.id) filter (where not h.is_later) as last,
               max(h.id) filter (where h.is_later) as last_of_many
        from (
            select u.*
            from (
                (
                    select o.ctid as place, o.id, o.acquired_token, o.acquired_at, o.next_attempt_at,
                           false as is_later
                    from {table} o
                    where o.queue = w.queue and o.key = w.key
                      and o.timer_id is null and o.next_attempt_at <= o.created_at and o.id >= w.floor
                      and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
                    order by o.queue, o.key, o.id
                    limit w.run + 8
                )
                union all
                (
                    select o.ctid, o.id, o.acquired_token, o.acquired_at, o.next_attempt_at, true
                    from {table} o
                    where o.queue = w.queue and o.key = w.key
                      and (o.timer_id is not null or o.next_attempt_at > o.created_at)
                      and o.last_attempt_at is not null and put_off.are_some and not later.are_many
                    order by o.queue, o.key, o.last_attempt_at
                )
                union all
                (
                    select o.ctid, o.id, o.acquired_token, o.acquired_at, o.next_attempt_at, true
                    from {table} o
                    where o.queue = w.queue and o.key = w.key
                      and (o.timer_id is not null or o.next_attempt_at > o.created_at)
                      -- A clock that was set back shows what is in flight as due later.
                      and o.last_attempt_at is null and o.next_attempt_at <= now() + interval '10 seconds'
                      and (o.next_attempt_at <= now() or o.deliveries_count > 0)
                      and put_off.are_some and not later.are_many
                    order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
                )
                union all
                (
                    select o.ctid, o.id, o.acquired_token, o.acquired_at, o.next_attempt_at, true
                    from {table} o
                    where o.queue = w.queue and o.key = w.key
                      and (o.timer_id is not null or o.next_attempt_at > o.created_at)
                      and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
                      and later.are_many
                    order by o.queue, o.key, o.id
                    limit w.run + 8
                )
            ) u
            order by u.id
        ) h
    ) m
    -- Lower ids may have appeared below a message in flight: find a lease in the rest of the key. Whoever takes a key
    -- takes its first messages: where the one stands that was next after our own last run, nobody has any above.
    cross join lateral (
        select coalesce(bool_or(y.acquired_at >= now() - make_interval(secs => w.ttl)), false) as is_held,
               count(*) > 0 as is_leased
        from (
            (
                -- Ordered, so that no plan walks other keys for it.
                select x.acquired_at, x.acquired_token
                from {table} x
                where m.has_more
                  and x.queue = w.queue and x.key = w.key and x.timer_id is null and x.next_attempt_at <= x.created_at
                  and x.id > m.last
                  and x.id <= coalesce((
                      -- By the primary key, whatever else an index offers.
                      select t.id
                      from (select * from {table} s where s.id = w.next offset 0) t
                      where t.queue = w.queue and t.key = w.key and t.acquired_token is null and t.timer_id is null
                        and t.next_attempt_at <= t.created_at
                  ), 9223372036854775807)
                order by x.queue, x.key, x.id
                offset 0
            )
            union all
            (
                select x.acquired_at, x.acquired_token
                from {table} x
                where later.are_many
                  and x.queue = w.queue and x.key = w.key and (x.timer_id is not null or x.next_attempt_at > x.created_at)
                  and x.id > m.last_of_many
                order by x.queue, x.key, x.id
                offset 0
            )
        ) y
        where y.acquired_token is not null and y.acquired_token <> all (:unheard::uuid[])
    ) rest
    where m.is_free and m.due[1] and not rest.is_held
), abandoned as materialized (
    select h.n, h.queue, h.key, h.ttl
    from head h
    where h.is_leased
       or exists (
           select from unnest(h.tokens[h.length + 1:]) as u (token)
           where u.token is not null and u.token <> all (:unheard::uuid[])
       )
), ended as (
    update {table} o
    set acquired_token = null, acquired_at = null
    where o.ctid = any (array(
        select l.place
        from abandoned a
        cross join lateral (
            (
                select x.ctid as place, x.acquired_token as token, x.acquired_at
                from {table} x
                where x.queue = a.queue and x.key = a.key and x.timer_id is null and x.next_attempt_at <= x.created_at
                order by x.queue, x.key, x.id
                offset 0
            )
            union all
            (
                select x.ctid, x.acquired_token, x.acquired_at
                from {table} x
                where x.queue = a.queue and x.key = a.key and (x.timer_id is not null or x.next_attempt_at > x.created_at)
                order by x.queue, x.key, x.id
                offset 0
            )
        ) y
        cross join lateral (
            select t.ctid as place
            from {table} t
            where t.ctid = y.place and t.acquired_token = y.token
            for update skip locked
        ) l
        where y.token <> all (:unheard::uuid[]) and y.acquired_at < now() - make_interval(secs => a.ttl)
    ))
), run as materialized (
    select h.n, h.length, h.seen, h.next, h.first, h.is_certain, u.place, u.token, u.id
    from head h
    cross join lateral unnest(h.places[1:h.length], h.tokens[1:h.length], h.ids[1:h.length]) as u (place, token, id)
    where h.n <> all (array(select n from abandoned))
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
    select r.n, r.place, r.id, r.length, r.seen, r.next, r.first, r.is_certain, count(*) over (partition by r.n) as held
    from run r
    cross join lateral (
        select from {table} o
        where o.ctid = r.place and o.acquired_token is not distinct from r.token
        for update skip locked
    ) l
), won as materialized (
    select l.n, l.place, l.id, l.next, l.first, l.is_certain, l.seen - l.length as more
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
              least(greatest(o.created_at, '0002-01-01Z'), '9998-12-31Z') as created_at,
              least(greatest(o.next_attempt_at, '0002-01-01Z'), '9998-12-31Z') as next_attempt_at,
              case when o.first_attempt_at is not null
                  then least(greatest(o.first_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as first_attempt_at,
              case when o.last_attempt_at is not null
                  then least(greatest(o.last_attempt_at, '0002-01-01Z'), '9998-12-31Z') end as last_attempt_at,
              o.timer_id, o.key, o.priority, o.message_id,
              o.acquired_at
)
select t.*, w.next as next_id, w.first as first_id, w.is_certain, w.more
from taken t
join won w on w.id = t.id
union all
-- Free, and another claim is at it, or leases were ended: a row without a message, for both of us may have given way.
select null, h.queue, null, null, null, null, null, null, null, null, null, h.key, null, null, null, null, null, false,
       null
from head h
where h.n <> all (array(select n from won))

-- name: overtaken
-- Places of the keys, from 1 on, in which a message stands in front of the given one that is due or was tried.
select w.n
from unnest(:queues::text[], :keys::text[], :firsts::bigint[]) with ordinality as w (queue, key, first, n)
cross join lateral (
    select count(*) >= 100 as are_many
    from (
        select
        from {table} o
        where o.queue = w.queue and o.key = w.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
          and o.last_attempt_at is null and o.next_attempt_at <= now()
        order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
        limit 100
    ) d
) later
where exists (
    select
    from (
        (
            select o.id
            from {table} o
            where o.queue = w.queue and o.key = w.key and o.timer_id is null and o.next_attempt_at <= o.created_at
              and o.id < w.first and (o.deliveries_count > 0 or o.next_attempt_at <= now())
            order by o.queue, o.key, o.id
            limit 1
        )
        union all
        (
            select o.id
            from {table} o
            where o.queue = w.queue and o.key = w.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is not null and not later.are_many
            order by o.queue, o.key, o.last_attempt_at
        )
        union all
        (
            select o.id
            from {table} o
            where o.queue = w.queue and o.key = w.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is null and o.next_attempt_at <= now() and not later.are_many
            order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
        )
        union all
        (
            select o.id
            from {table} o
            where o.queue = w.queue and o.key = w.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
              and o.id < w.first and later.are_many
            order by o.queue, o.key, o.id
            limit 1
        )
    ) u
    where u.id < w.first
)

-- name: find_keys
-- Keys of due messages just above each keyed lane's floor, in due order, and the time; locks nothing.
select l.queue, l.priority, m.key, m.next_attempt_at, m.id, now() as server_now
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

-- name: head_of_key
-- The id of the message that a claim of a key would take first, without its content.
select least(
    (select o.id
     from {table} o
     where o.queue = :queue and o.key = :key and o.timer_id is null and o.next_attempt_at <= o.created_at
       and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
     order by o.queue, o.key, o.id
     limit 1),
    (select o.id
     from {table} o
     where o.queue = :queue and o.key = :key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
       and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
     order by o.queue, o.key, o.id
     limit 1)
) as id
