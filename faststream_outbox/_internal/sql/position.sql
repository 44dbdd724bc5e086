-- name: low_water
-- How far a group has come everywhere, and the last message before that in the order of the log, with its transaction.
-- A cursor need not stand behind a message of its own tick: it may have been put just before one.
select c.tick, c.position, m.position as last_position,
       coalesce((select l.transaction_id from {log} l where l.position = m.position), 0) as transaction_id
from (
    select o.tick, o.position
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text
    order by o.tick, o.position
    limit 1
) c
cross join lateral (
    select coalesce(
        (select max(least(r.hi, c.position))
         from {ticks} t
         cross join lateral unnest(t.lows, t.highs) r (lo, hi)
         where t.tick = c.tick and r.lo <= c.position),
        (select t.highs[cardinality(t.highs)] from {ticks} t where t.tick < c.tick order by t.tick desc limit 1),
        0
    ) as position
) m

-- name: known_group
-- Whether a group has a place in the log, a member, or something deferred; without a uri, whatever it reads.
select 1
where exists (select from {offsets} o
              where o.consumer_group = :group::text and (:uri::text is null or o.uri = :uri::text))
   or exists (select from {members} m
              where m.consumer_group = :group::text and (:uri::text is null or m.uri = :uri::text))
   or exists (select from {deferred} a
              where a.consumer_group = :group::text and (:uri::text is null or a.uri = :uri::text))

-- name: groups
-- Groups that have a place in the log or a member, and what they read.
select o.consumer_group, o.uri from {offsets} o
union
select m.consumer_group, m.uri from {members} m
order by 1, 2
limit :limit::int

-- name: guess_tick
-- Near which tick a position is, and the first and the last tick: positions grow with ticks, but for those that came late.
-- Found by halving. A tick may consist of late ones only, so a few are looked at together; several of such in a row may
-- lead astray, and whoever asks looks around. Nothing, where the position is not sequenced.
with recursive ends as materialized (
    select (select t.tick from {ticks} t order by t.tick limit 1) as first,
           (select t.tick from {ticks} t order by t.tick desc limit 1) as last
), search (lo, hi) as (
    select e.first, e.last from ends e
    where e.first is not null
      and not exists (select from {head} h where h.tick >= e.last and h.high < :position::bigint)
    union all
    select case when m.is_reached then s.lo else (s.lo + s.hi) / 2 + 1 end,
           case when m.is_reached then (s.lo + s.hi) / 2 else s.hi end
    from search s
    cross join lateral (
        select coalesce(max(n.high), 0) >= :position::bigint as is_reached
        from (select t.highs[cardinality(t.highs)] as high from {ticks} t
              where t.tick >= (s.lo + s.hi) / 2 order by t.tick limit 8) n
    ) m
    where s.lo < s.hi
)
select s.lo as guess, e.first, e.last from search s, ends e where s.lo >= s.hi limit 1

-- name: place_of
-- The tick of a position among some ticks.
select t.tick
from {ticks} t
where t.tick >= :first::bigint and t.tick < :end::bigint
  and exists (select from unnest(t.lows, t.highs) r (lo, hi) where :position::bigint between r.lo and r.hi)
order by t.tick desc
limit 1

-- name: position_of_event
-- The position of a message by its event_id.
select l.position from {log} l where l.event_id = :event_id::uuid

-- name: place_of_pair
-- The place before the first message that lies behind a pair of transaction and position.
-- A larger position lies behind it too: where the message at `offset` is gone, all that had a smaller one are, and
-- those that are left may have any transaction.
select t.tick, l.position - 1 as position
from {ticks} t
cross join lateral unnest(t.lows, t.highs) r (lo, hi)
join {log} l on l.position between r.lo and r.hi
where l.position > :offset::bigint
   or (l.transaction_id, l.position) > (:transaction_id::bigint, :offset::bigint)
order by t.tick, l.position
limit 1

-- name: place_before
-- The place behind the last tick that was made before a moment.
select t.tick, t.highs[cardinality(t.highs)] as position
from {ticks} t
where t.at < :moment::timestamptz
order by t.at desc, t.tick desc
limit 1

-- name: last_place
-- The place behind the last tick.
select t.tick, t.highs[cardinality(t.highs)] as position from {ticks} t order by t.tick desc limit 1

-- name: lock_group
-- Keeps retention from deleting, and spans of a group from being cut and joined, until the end of the transaction.
select pg_advisory_xact_lock_shared((1869968493::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)
           as retention,
       pg_advisory_xact_lock(hashtextextended(:group::text || chr(31) || :uri::text, 1869)) as spans

-- name: lock_spans
-- Waits for whoever settles at this moment, and lets nobody settle until the end of the transaction.
select o.lo
from {offsets} o
where o.consumer_group = :group::text and o.uri = :uri::text
order by o.lo
for update

-- name: seek
-- Puts all of a group's cursors to one place; whoever reads starts there, and what was under way does not count.
-- Runs after the spans were locked, so that it sees whatever the last settle has deferred. What waits behind the place
-- is read again; what waits before it is passed like the rest where a cursor moves on, and else goes on waiting.
with before as materialized (
    select o.lo, o.hi, o.tick, o.position
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text
), moved as (
    update {offsets} o
    set tick = :tick::bigint, position = :position::bigint, epoch = o.epoch % 9223372036854775807 + 1, owner = null, until = null,
        updated_at = clock_timestamp()
    where o.consumer_group = :group::text and o.uri = :uri::text
    returning o.lo
), made as (
    insert into {offsets} as n (consumer_group, uri, lo, hi, tick, position, epoch)
    select :group::text, :uri::text, 0, 255, :tick::bigint, :position::bigint, 1
    where not exists (select from {offsets} o where o.consumer_group = :group::text and o.uri = :uri::text)
    on conflict (consumer_group, uri, lo) do update
    set tick = excluded.tick, position = excluded.position, epoch = n.epoch % 9223372036854775807 + 1, owner = null, until = null
    returning n.lo
), gone as (
    delete from {deferred} a
    where a.consumer_group = :group::text and a.uri = :uri::text
      and ((a.tick, a.position) > (:tick::bigint, :position::bigint)
           or (a.state <> 'parked' and not exists (
                   select from before b
                   where a.slot between b.lo and b.hi
                     and (b.tick, b.position) >= (:tick::bigint, :position::bigint))))
)
select lo, pg_notify(:channel::text, :payload::text) as called
from (select lo from moved union all select lo from made) s limit 1

-- name: lag
-- What a group has not read yet, by span, as far as it is counted.
-- Looks at a limited number of positions behind each place where a cursor stands, once however many spans stand there,
-- and at as many that are visible and in no tick yet: where nobody reads, nobody makes ticks.
-- Of each span: whether that was all, how many positions were looked at and how many lie behind those, whether these are
-- counted, when the last that was looked at was sequenced, and by slot: how many messages, and seconds since the first of
-- them was sequenced.
-- A killed process has not given its slots back: it is their owner only while its lease lives.
with asked as materialized (
    select o.* from {offsets} o
    where (:group::text is null or o.consumer_group = :group::text) and (:uri::text is null or o.uri = :uri::text)
), places as materialized (
    select p.tick, p.position, greatest(:least::int, :most::int / count(*) over ())::int as most
    from (select distinct a.tick, a.position from asked a) p
), ranges as materialized (
    -- A range has as many messages as numbers. It is cut where enough of them have been looked at.
    select p.tick, p.position, r.tick as found, r.at, r.lo, least(r.hi, r.lo + p.most - r.before - 1) as hi, r.hi as whole
    from places p
    cross join lateral (
        select n.tick, n.at, n.lo, n.hi,
               sum(n.hi - n.lo + 1) over (order by n.tick, n.lo rows unbounded preceding)::bigint - (n.hi - n.lo + 1) as before
        from (
            select t.tick, t.at, case when t.tick = p.tick then greatest(u.lo, p.position + 1) else u.lo end as lo, u.hi
            from (select k.* from {ticks} k where k.tick >= p.tick order by k.tick limit p.most + 1) t
            cross join lateral unnest(t.lows, t.highs) u (lo, hi)
        ) n
        where n.lo <= n.hi
    ) r
    where r.before < p.most
), samples as materialized (
    select p.tick, p.position, s.looked_at, s.last_at,
           coalesce(s.cut = 0 and s.last >= (select max(k.tick) from {ticks} k), true) as is_all,
           coalesce(case when b.ticks <= p.most then s.cut + b.count
                         else greatest(0, (select max(h.high) from {head} h) - greatest(p.position, s.highest)) end, 0)
               as beyond,
           coalesce(b.ticks <= p.most, true) as is_counted
    from places p
    cross join lateral (
        select sum(r.hi - r.lo + 1)::bigint as looked_at, sum(r.whole - r.hi)::bigint as cut, max(r.found) as last,
               max(r.hi) as highest, max(r.at) as last_at
        from ranges r where r.tick = p.tick and r.position = p.position
    ) s
    cross join lateral (
        select count(*) as ticks, coalesce(sum(k.count), 0)::bigint as count
        from (select n.count from {ticks} n where n.tick > s.last order by n.tick limit p.most + 1) k
    ) b
), found as materialized (
    -- By slot before by span: few of them stand for many messages.
    select f.tick, f.position, f.uri, l.slot, count(*) as count, min(r.at) as since
    from (select distinct a.tick, a.position, a.uri from asked a) f
    join ranges r on r.tick = f.tick and r.position = f.position
    join {log} l on l.position between r.lo and r.hi
    where f.uri = '' or l.uri = f.uri or starts_with(l.uri, case when right(f.uri, 1) = '/' then f.uri
                                                                 else f.uri || '/' end)
    group by f.tick, f.position, f.uri, l.slot
), fresh as materialized (
    select l.position, l.uri, l.slot, least(greatest(l.created_at, '0002-01-01Z'), clock_timestamp()) as created_at
    from {log} l
    where l.position > coalesce((select max(h.high) from {head} h), 0)
      and l.position < coalesce((select least(max(h.high), 9223371036854775807) from {head} h), 0) + 1000000000000
    order by l.position
    limit (select greatest(:least::int, :most::int / greatest(count(distinct a.uri), 1)) from asked a)
), news as materialized (
    -- What of it was looked at, and how many positions lie behind that.
    select n.looked_at, n.last_at, coalesce(case when n.last < m.last then m.last - n.last end, 0) as beyond
    from (select count(*) as looked_at, max(f.position) as last, max(f.created_at) as last_at from fresh f) n
    cross join lateral (
        select max(l.position) as last from {log} l
        where l.position < coalesce((select least(max(h.high), 9223371036854775807) from {head} h), 0) + 1000000000000
    ) m
), found_fresh as materialized (
    select f.uri, n.slot, count(*) as count, min(n.created_at) as since
    from (select distinct a.uri from asked a) f
    join fresh n on f.uri = '' or n.uri = f.uri or starts_with(n.uri, case when right(f.uri, 1) = '/' then f.uri
                                                                           else f.uri || '/' end)
    group by f.uri, n.slot
)
select a.consumer_group, a.uri, a.lo, a.hi, a.tick, a.position,
       case when a.until >= clock_timestamp() then a.owner end as owner,
       case when a.until is not null then least(greatest(a.until, '0002-01-01Z'), '9998-12-31Z') end as leased_until,
       least(greatest(a.updated_at, '0002-01-01Z'), '9998-12-31Z') as updated_at,
       s.is_all and w.beyond = 0 as is_all, coalesce(s.looked_at, 0) + w.looked_at as looked_at,
       s.beyond + w.beyond as beyond, s.is_counted and w.beyond = 0 as is_counted,
       coalesce(extract(epoch from clock_timestamp() - coalesce(s.last_at, w.last_at))::float8, 0) as last_seconds,
       coalesce(c.slots, array[]::smallint[]) as slots, coalesce(c.counts, array[]::bigint[]) as counts,
       coalesce(c.seconds, array[]::float8[]) as seconds
from asked a
join samples s on s.tick = a.tick and s.position = a.position
cross join news w
cross join lateral (
    select array_agg(u.slot) as slots, array_agg(u.count) as counts,
           array_agg(extract(epoch from clock_timestamp() - u.since)::float8) as seconds
    from (
        select b.slot, sum(b.count)::bigint as count, min(b.since) as since
        from (select f.slot, f.count, f.since from found f
              where f.tick = a.tick and f.position = a.position and f.uri = a.uri and f.slot between a.lo and a.hi
              union all
              select f.slot, f.count, f.since from found_fresh f where f.uri = a.uri and f.slot between a.lo and a.hi) b
        group by b.slot
    ) u
) c
order by a.consumer_group, a.uri, a.lo

-- name: unread
-- How many of these messages a group has yet to handle.
select count(*)
from unnest(:positions::bigint[]) p (position)
join {log} l on l.position = p.position
left join lateral (
    select t.tick from {ticks} t
    where t.tick >= (select coalesce(min(o.tick), 0) from {offsets} o
                     where o.consumer_group = :group::text and o.uri = :uri::text)
      and exists (select from unnest(t.lows, t.highs) r (lo, hi) where p.position between r.lo and r.hi)
    limit 1
) t on true
left join {offsets} o
  on o.consumer_group = :group::text and o.uri = :uri::text and l.slot between o.lo and o.hi
left join {deferred} a
  on a.consumer_group = :group::text and a.uri = :uri::text and a.position = l.position and a.state <> 'parked'
left join {head} h on h.one
where a.position is not null or o.lo is null
   or (t.tick is null and (l.position > coalesce(h.high, 0) or exists (
           select from {gaps} g where l.position between g.lo and g.hi)))
   or (t.tick, l.position) > (o.tick, o.position)
