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
select d.n, null::text as key, null::smallint as priority, count(*) >= :most::int as has_more, null::bigint as id
from due d
group by d.n
union all
select k.n, k.key, h.priority, false, h.id
from (select distinct d.n, d.key from due d where d.is_free) k
join lane l on l.n = k.n
cross join lateral (
    select h.id, h.priority, h.next_attempt_at, h.acquired_token, h.acquired_at
    from (
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = l.queue and o.key = k.key and o.timer_id is null and o.next_attempt_at <= o.created_at
              and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
            order by o.queue, o.key, o.id
            limit 1
        )
        union all
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = l.queue and o.key = k.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is not null
            order by o.queue, o.key, o.last_attempt_at
            limit 100
        )
        union all
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = l.queue and o.key = k.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is null and o.next_attempt_at <= now()
            order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
            limit 100
        )
    ) h
    order by h.id
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
    select :after::text, 0
    union all
    select least(
        (select o.key
         from {table} o
         where o.queue = :queue and o.key is not null and o.timer_id is null and o.next_attempt_at <= o.created_at
           and o.key > s.key
         order by o.queue, o.key, o.id
         limit 1),
        (select o.key
         from {table} o
         where o.queue = :queue and o.key is not null and (o.timer_id is not null or o.next_attempt_at > o.created_at)
           and o.key > s.key
         order by o.queue, o.key, o.id
         limit 1)
    ), s.n + 1
    from step s
    where s.key is not null and s.n < :keys
      and not exists (select from {table} p
                      where p.queue = '$paused' and p.timer_id = :queue and p.acquired_token is not null)
)
select s.key,
       coalesce(h.claimable, false)
       /*if dead*/
       and not (:held_by_dead::boolean and exists (select from {dead} d where d.queue = :queue and d.key = s.key))
       /*end*/
           as is_claimable,
       h.priority, h.id
from step s
left join lateral (
    select h.id, h.priority, h.next_attempt_at <= now()
           and (h.acquired_token is null or h.acquired_at < now() - make_interval(secs => :ttl)
                or h.acquired_token = any (:unheard::uuid[])) as claimable
    from (
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = :queue and o.key = s.key and o.timer_id is null and o.next_attempt_at <= o.created_at
              and (o.deliveries_count > 0 or o.last_attempt_at is not null or o.next_attempt_at <= now())
            order by o.queue, o.key, o.id
            limit 1
        )
        union all
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = :queue and o.key = s.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is not null
            order by o.queue, o.key, o.last_attempt_at
            limit 100
        )
        union all
        (
            select o.id, o.priority, o.next_attempt_at, o.acquired_token, o.acquired_at
            from {table} o
            where o.queue = :queue and o.key = s.key and (o.timer_id is not null or o.next_attempt_at > o.created_at)
              and o.last_attempt_at is null and o.next_attempt_at <= now()
            order by o.queue, o.key, o.last_attempt_at, o.next_attempt_at
            limit 100
        )
    ) h
    order by h.id
    limit 1
) h on true
where s.key is not null and s.n > 0

-- name: next_due
-- Seconds until the first message above each lane's floor falls due, where there is one.
select l.queue, l.priority, l.keyed, extract(epoch from d.due - clock_timestamp())::float8 as due_in
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

-- name: drawn_ids
-- Which server this is, the last id drawn before now, and the transactions that may have drawn one and not ended.
-- Whoever inserts has a lock on the table from before its id is drawn until its end; ids are given out in order only
-- where the sequence keeps none back.
select pg_postmaster_start_time() as server, d.id as drawn, l.writers
from (
    select case when has_sequence_privilege(s.name, 'usage, select')
                     and (select q.seqcache = 1 from pg_sequence q where q.seqrelid = s.name)
                then pg_sequence_last_value(s.name) end as id
    from (select pg_get_serial_sequence(:table, 'id')::regclass as name offset 0) s
    offset 0
) d
-- After the id was read, and so for each id.
cross join lateral (
    select coalesce(array_agg(k.virtualtransaction), array[]::text[]) as writers
    from pg_locks k
    where k.locktype = 'relation' and k.relation = :table::text::regclass and k.mode = 'RowExclusiveLock'
      and k.database = (select b.oid from pg_database b where b.datname = current_database())
      and d.id is not null
) l
