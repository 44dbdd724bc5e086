-- name: may_see_drawn
-- Whether this role may know how far numbers were drawn.
select has_sequence_privilege('{sequence_name}', 'select')

-- name: drawn
-- How far numbers were drawn.
select case when s.is_called then s.last_value else 0 end from {sequence} s

-- name: open_gaps
-- Gaps of transactions that have not ended, oldest first, with every transaction that may own each of them.
-- Whoever draws a number locks the sequence until the end of its transaction, prepared ones too: see `owners` of `tick`.
-- Locks are looked at after the statement's snapshot was taken, so that the owner of what that misses holds one, or has
-- ended. It has a smaller xid than the gap's bound, and began before the gap was found. And it has done something since
-- the message in front of the gap was published, which drew its number earlier.
-- With `drawn`, also the numbers behind the last one that is sequenced: for how long these are drawn is not known, but
-- not for longer than their transaction runs. A standby knows the gaps and none of the transactions.
with held as materialized (
    select l.locktype, l.database, l.relation, l.virtualtransaction, l.transactionid, l.pid, l.mode, l.granted
    from pg_locks l
), me as materialized (
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax
), ids as materialized (
    -- As 64 bits: the nearest to the snapshot's.
    select h.virtualtransaction, h.transactionid::text as short,
           me.xmax + case when d.diff > 2147483647 then d.diff - 4294967296
                          when d.diff < -2147483648 then d.diff + 4294967296
                          else d.diff end as xid
    from held h, me
    cross join lateral (select h.transactionid::text::bigint - mod(me.xmax, 4294967296) as diff) d
    where h.locktype = 'transactionid' and h.mode = 'ExclusiveLock' and h.granted
), drawing as materialized (
    select distinct h.pid, i.xid, i.short
    from held h
    left join lateral (
        select i.xid, i.short from ids i where i.virtualtransaction = h.virtualtransaction order by i.xid limit 1
    ) i on true
    where h.locktype = 'relation' and h.relation = '{sequence_name}'::regclass and h.mode <> 'AccessShareLock'
      and h.granted and h.pid is distinct from pg_backend_pid()
      and h.database = (select d.oid from pg_database d where d.datname = current_database())
), owners as materialized (
    select d.pid, p.gid as prepared, coalesce(a.usename, p.owner) as owner, a.application_name as application, a.state,
           nullif(a.query, '<insufficient privilege>') as query, d.xid, a.xact_start,
           coalesce(a.xact_start, p.prepared) as began_at,
           coalesce(p.prepared, case when starts_with(a.state, 'idle in transaction') then a.state_change end)
               as idle_since
    from drawing d
    left join pg_stat_activity a on a.pid = d.pid
    left join pg_prepared_xacts p on d.pid is null and p.transaction::text = d.short
), lowest as materialized (
    select pg_is_in_recovery() as is_standby, min(coalesce(o.xid, 0)) as xid from owners o
), newest as materialized (
    select h.high, h.lows, h.highs, h.floor, h.at from {head} h
), reached as materialized (
    select coalesce(max(h.high), 0) as high from newest h
), fresh as materialized (
    -- Visible and in no tick yet: many where nobody reads, and then those behind the first few count as drawn.
    select l.position from {log} l
    where l.position > (select s.high from reached s) and l.position <= :drawn::bigint
    order by l.position
    limit 1000
), gaps as materialized (
    select g.lo, g.hi, g.since, g.bound
    from (
        select r.lo, r.hi, least(greatest(o.since, '0002-01-01Z'), '9998-12-31Z') as since, o.bound
        from newest h
        cross join lateral (
            select c.lows, c.highs, c.since, c.bound
            from (
                select b.lows, b.highs, b.since, b.bound,
                       sum(cardinality(b.lows)) over (order by b.bound, b.lo) - cardinality(b.lows) as before
                from (
                    select n.* from {gap_table} n, lowest w
                    where n.bound >= h.floor and n.bound > case when w.is_standby then -1 else w.xid end
                    order by n.bound, n.lo
                    limit :limit::int
                ) b
            ) c
            where c.before < :limit::int
            union all
            select h.lows, h.highs, h.at, null
        ) o
        cross join lateral unnest(o.lows, o.highs) r (lo, hi)
        where o.since < clock_timestamp() - make_interval(secs => :age::float8)
        order by o.since, r.lo
        limit :limit::int
    ) g
    union all
    select b.lo, b.hi, null, null
    from (
        select coalesce(lag(v.position) over (order by v.position), s.high) + 1 as lo, v.position - 1 as hi
        from reached s, fresh v
        union all
        select greatest(s.high, (select max(v.position) from fresh v)) + 1, :drawn::bigint from reached s
    ) b
    where b.lo <= b.hi
)
select g.lo, g.hi, coalesce(g.since, o.began_at) as since,
       greatest(extract(epoch from clock_timestamp() - coalesce(g.since, o.began_at))::float8, 0) as age,
       o.pid, o.prepared, current_database()::text as database, o.owner::text as user, o.application, o.state, o.query,
       o.began_at, extract(epoch from clock_timestamp() - o.began_at)::float8 as running, o.xid::text as xid
from gaps g
cross join lowest w
left join lateral (
    select case when l.created_at <= clock_timestamp() then l.created_at end as created_at
    from {log} l where l.position < g.lo order by l.position desc limit 1
) before on true
left join owners o
  on (g.bound is null or o.xid is null or o.xid < g.bound)
 and (g.since is null or o.xact_start is null or o.xact_start <= g.since)
 and (o.idle_since is null or before.created_at is null or o.idle_since >= before.created_at)
where o.pid is not null or o.prepared is not null or (w.is_standby and g.since is not null)
order by coalesce(g.since, o.began_at), g.lo, o.began_at, o.xid

-- name: blocked_keys
-- Keys whose messages wait for one that is retried, or that is parked, those with the most first.
-- Every such key has a message that is not parked: they are found in an index that has no parked one in it, by a descent
-- for each group and each key. Looks at a limited number of keys of each group, and counts a limited number of messages
-- of each key.
with recursive reading (consumer_group, uri) as (
    select f.consumer_group, f.uri
    from (
        select a.consumer_group, a.uri from {deferred} a
        where a.state <> 'parked' and a.consumer_group >= coalesce(:group::text, '')
        order by a.consumer_group, a.uri, a.slot, a.key
        limit 1
    ) f
    where :group::text is null or f.consumer_group = :group::text
    union all
    select n.consumer_group, n.uri
    from reading g
    cross join lateral (
        select a.consumer_group, a.uri from {deferred} a
        where a.state <> 'parked' and (a.consumer_group, a.uri) > (g.consumer_group, g.uri)
        order by a.consumer_group, a.uri, a.slot, a.key
        limit 1
    ) n
    where :group::text is null or n.consumer_group = :group::text
), shares as materialized (
    select r.consumer_group, r.uri, greatest(:least_keys::int, :keys::int / count(*) over ())::int as most from reading r
), keys as materialized (
    select s.consumer_group, s.uri, k.slot, k.key, k.number > s.most as is_beyond,
           count(*) over () as count, max(k.number) over (partition by s.consumer_group, s.uri) > s.most as has_more
    from shares s
    cross join lateral (
        with recursive walk (slot, key, number) as (
            (select a.slot, a.key, 1 from {deferred} a
             where a.consumer_group = s.consumer_group and a.uri = s.uri and a.state <> 'parked'
             order by a.slot, a.key
             limit 1)
            union all
            select n.slot, n.key, w.number + 1
            from walk w
            cross join lateral (
                select a.slot, a.key from {deferred} a
                where a.consumer_group = s.consumer_group and a.uri = s.uri and a.state <> 'parked'
                  and (a.slot, a.key) > (w.slot, w.key)
                order by a.slot, a.key
                limit 1
            ) n
            where w.number <= s.most
        )
        select w.slot, w.key, w.number from walk w
    ) k
), heads as materialized (
    select k.consumer_group, k.uri, k.slot, k.key, k.has_more, f.state as first_state,
           case when f.state = 'retry' then f.position else p.position end as position,
           greatest(:least::int, :most::int / k.count)::int as most
    from keys k
    cross join lateral (
        select a.position, a.state from {deferred} a
        where a.consumer_group = k.consumer_group and a.uri = k.uri and a.slot = k.slot and a.key = k.key
          and a.state <> 'parked'
        order by a.tick, a.position
        limit 1
    ) f
    left join lateral (
        select a.position, a.state from {deferred} a
        where a.consumer_group = k.consumer_group and a.uri = k.uri and a.key = k.key
        order by a.tick, a.position
        limit 1
    ) p on p.state = 'parked'
    where not k.is_beyond
), counted as materialized (
    select h.*, c.count - case when h.first_state = 'retry' then 1 else 0 end as waiting, c.count > h.most as is_estimate
    from heads h
    cross join lateral (
        select count(*) as count
        from (select from {deferred} a
              where a.consumer_group = h.consumer_group and a.uri = h.uri and a.slot = h.slot and a.key = h.key
                and a.state <> 'parked'
              limit h.most + 1) n
    ) c
    where h.position is not null
)
select c.consumer_group, c.uri, c.key, c.position, a.state, c.waiting, c.is_estimate, c.has_more,
       least(greatest(coalesce(a.first_attempt_at, a.updated_at), '0002-01-01Z'), '9998-12-31Z') as since,
       a.attempts,
       case when a.due is not null then least(greatest(a.due, '0002-01-01Z'), '9998-12-31Z') end as due,
       a.error_type, a.error_message
from (select * from counted n where n.waiting > 0 order by n.waiting desc, n.consumer_group, n.uri, n.key
      limit :limit::int) c
join {deferred} a on a.consumer_group = c.consumer_group and a.uri = c.uri and a.position = c.position
order by c.waiting desc, c.consumer_group, c.uri, c.key

-- name: oldest_of_groups
-- For how long the oldest message waits that a group has deferred and not parked, and whether the group has a place.
-- Where it has none, the oldest that it would read from the beginning; of some at the beginning of the log.
-- Looks at a limited number of messages of each group.
select a.consumer_group, a.uri, p.has_place,
       extract(epoch from clock_timestamp() - case when p.has_place then d.since else l.since end)::float8 as seconds
from unnest(:groups::text[], :uris::text[]) a (consumer_group, uri)
cross join lateral (
    select exists (select from {offsets} o where o.consumer_group = a.consumer_group and o.uri = a.uri) as has_place
) p
cross join lateral (
    select min(least(greatest(m.created_at, '0002-01-01Z'), clock_timestamp())) as since
    from (
        select w.position from {deferred} w
        where w.consumer_group = a.consumer_group and w.uri = a.uri and w.state <> 'parked' and p.has_place
        order by w.slot, w.key, w.tick, w.position
        limit :limit::int
    ) w
    join {log} m on m.position = w.position
) d
cross join lateral (
    select min(least(greatest(m.created_at, '0002-01-01Z'), clock_timestamp())) as since
    from (select e.uri, e.created_at from {log} e where not p.has_place order by e.position limit :limit::int) m
    where a.uri = '' or m.uri = a.uri or starts_with(m.uri, case when right(a.uri, 1) = '/' then a.uri
                                                                  else a.uri || '/' end)
) l
