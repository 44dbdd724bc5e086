-- name: database
-- Which database this is, and whether this role may know which server.
select d.oid::text as oid, has_function_privilege('pg_control_system()', 'execute') as may_know_server
from pg_database d
where d.datname = current_database()

-- name: server
-- Which server this is. With the database and the sequence's own file, a head is known by it that was written elsewhere.
select s.system_identifier::text from pg_control_system() s

-- name: progress
-- How far numbers were drawn, and how far they are sequenced; touches no message.
-- The stray one is the end of the log where the sequence does not reach beyond what is sequenced: normally nothing.
-- Positions that no sequence can have reached by now are a stranger's: those of all who come later would follow them.
-- The head is ours if it was written here, and by whoever wrote the ticks.
select d.drawn, h.high, h.tick, coalesce(o.since, case when cardinality(h.lows) > 0 then h.at end) as oldest_gap,
       case when d.drawn <= coalesce(h.high, 0)
            then (select max(l.position) from {log} l
                  where l.position > coalesce(h.high, 0)
                    and l.position < least(coalesce(h.high, 0), 9223371036854775807) + 1000000000000) end as stray,
       coalesce(h.origin = :place::text || pg_relation_filenode('{sequence_name}'::regclass)::text
                and h.tick >= coalesce((select max(t.tick) from {ticks} t), 0), false) as is_ours
from (select case when s.is_called then s.last_value else 0 end as drawn from {sequence} s) d
left join {head} h on h.one
left join lateral (
    select g.since from {gap_table} g where g.bound >= h.floor order by g.bound, g.lo limit 1
) o on true

-- name: suspend
-- Lets nobody tick until the head is repaired: it is missing, was written elsewhere, or the sequence has gone back.
-- Runs after the head was locked; nothing if somebody else has repaired it. Draws no number.
with last as materialized (
    select max(n.id) as id from {head_table} n
), ticked as materialized (
    select max(t.tick) as tick, max(t.highs[cardinality(t.highs)]) as high from {ticks} t
), head as materialized (
    select coalesce(l.id, 0) as id, greatest(h.high, k.high, 0) as high, greatest(h.tick, k.tick, 0) as tick
    from last l cross join ticked k left join {head_table} h on h.id = l.id
    where h.id is null or h.tick < k.tick
       or h.origin is distinct from :place::text || pg_relation_filenode('{sequence_name}'::regclass)::text
       or h.high > (select case when s.is_called then s.last_value else 0 end from {sequence} s)
       or (h.high = (select case when s.is_called then s.last_value else 0 end from {sequence} s)
           and exists (select from {log} x where x.position > h.high and x.position - 1000000000000 < h.high))
), old as (
    delete from {head_table} n using head h where n.id <= h.id
)
insert into {head_table} (id, high, tick, drawn)
select h.id + 1, h.high, h.tick, h.high from head h
returning high

-- name: kept
-- Of the next ticks: the last one, and which of their positions hold the message that was put into the tick.
-- Another one was written later: retention has deleted the first, and a sequence that went back gave out its number.
with portion as materialized (
    select s.tick, s.lows, s.highs, s.at
    from (
        select t.tick, t.lows, t.highs, t.at, sum(t.count) over (order by t.tick) - t.count as before
        from (select * from {ticks} t where t.tick > :tick::bigint order by t.tick limit 1000) t
    ) s
    where s.before < :limit::int
), islands as materialized (
    select min(k.position) as lo, max(k.position) as hi
    from (
        select l.position, l.position - row_number() over (order by l.position) as island
        from portion s
        cross join lateral unnest(s.lows, s.highs) r (lo, hi)
        cross join lateral (
            -- By itself, or a planner that knows nothing of ticks walks the whole log for each of them.
            select l.position from {log} l where l.position between r.lo and r.hi and l.created_at <= s.at offset 0
        ) l
    ) k
    group by k.island
)
select max(s.tick) as last, (select coalesce(array_agg(i.lo order by i.lo), '{}') from islands i) as lows,
       (select coalesce(array_agg(i.hi order by i.lo), '{}') from islands i) as highs
from portion s

-- name: repair
-- Lets ticks go on, with every number as a gap that does not hold a message which is in a tick.
-- Runs after the head was locked; nothing if somebody else has repaired it.
-- A message may have any of these numbers: publishers look at nothing, and drew what the sequence gave. It moved on
-- before, so that whoever owns one has a smaller xid than the next tick, which bounds them.
with head as materialized (
    select h.id, h.high, h.tick from {head} h where h.origin is null
), gone as (
    delete from {gap_table} g using head h where h.id is not null
), old as (
    delete from {head_table} n using head h where n.id <= h.id
)
insert into {head_table} (id, high, tick, lows, highs, origin, drawn)
select h.id + 1, h.high, h.tick, :lows::bigint[], :highs::bigint[],
       :place::text || pg_relation_filenode('{sequence_name}'::regclass)::text, h.high
from head h
returning id

-- name: lock_head
-- Begins a tick, unless another one is under way.
-- An advisory lock, because it gives no xid: locking a row may give one before the last tick has ended, and that would
-- be too small a bound for the gaps that the last tick found.
-- How far numbers were drawn by then is passed on to the tick: whatever it sees is younger.
select set_config('faststream_outbox.drawn', (select case when s.is_called then s.last_value else 0 end
                                              from {sequence} s)::text, true)
where pg_try_advisory_xact_lock((1869968492::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: wait_for_head
-- Begins a tick, after the one that is under way.
select pg_advisory_xact_lock((1869968492::bigint << 32) + '{sequence_name}'::regclass::oid::bigint) as head,
       set_config('faststream_outbox.drawn', (select case when s.is_called then s.last_value else 0 end
                                              from {sequence} s)::text, true) as drawn

-- name: owners
-- Tells the tick below which xid every transaction that has drawn a number of this log has ended; 0 if it is not known.
-- Runs between the head's lock and the tick.
-- Whoever draws a number locks the sequence first, until the end of its transaction, prepared ones too, and also where
-- the savepoint was rolled back that it drew in. A number that a tick has missed was drawn before, so its owner is among
-- those who hold the lock now, or has ended. The tick's snapshot is younger and sees what such a one has committed.
-- Transactions that have drawn no number of this log do not count, however long they are open.
with held as materialized (
    select l.locktype, l.database, l.relation, l.virtualtransaction, l.transactionid, l.mode, l.granted from pg_locks l
), me as materialized (
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax
), ids as materialized (
    -- As 64 bits: the nearest to the snapshot's.
    select h.virtualtransaction, me.xmax + case when d.diff > 2147483647 then d.diff - 4294967296
                                                when d.diff < -2147483648 then d.diff + 4294967296
                                                else d.diff end as xid
    from held h, me
    cross join lateral (select h.transactionid::text::bigint - mod(me.xmax, 4294967296) as diff) d
    where h.locktype = 'transactionid' and h.mode = 'ExclusiveLock' and h.granted
), drawing as materialized (
    select (select min(i.xid) from ids i where i.virtualtransaction = h.virtualtransaction) as xid
    from held h
    where h.locktype = 'relation' and h.relation = '{sequence_name}'::regclass and h.mode <> 'AccessShareLock'
      and h.database = (select d.oid from pg_database d where d.datname = current_database())
)
select set_config('faststream_outbox.ended', (
           case when exists (select from drawing d where d.xid is null) then 0
                else least((select min(d.xid) from drawing d), me.xmax - 1) end)::text, true)
from me

-- name: tick
-- Puts newly visible positions into a tick; what is drawn and not seen becomes or stays a gap.
-- Runs after the head was locked, in the same transaction, so that its one snapshot is younger than the last tick.
-- A gap is forgotten only when every transaction that could own it, one with a smaller xid than its bound, has ended
-- before this snapshot and the gap was looked at since. The bound is the xid of a later tick: it was given out after
-- the scan that missed the number. The snapshot's xmax would not do: it may be smaller than an xid in progress.
-- So the gaps that a tick finds stay in its head, and the next tick writes them down with its own xid as their bound.
-- All have ended below the snapshot's xmin, and of those that draw numbers all below what `owners` has found before.
-- A gap is looked at only if a transaction below its bound has ended since the last tick: else it cannot have filled.
-- What is only to be forgotten is deleted beside that, some of it in each tick: nothing waits for it.
-- There may be very many that have to be looked at: that is done in slices, a tick each, in the order of their numbers.
-- Nothing fresh comes before the last slice, because it may follow from something late, and then only what was drawn
-- before the first one: whatever was committed before that is visible to all slices. The next round counts from the
-- first one's snapshot.
-- The newest head counts, and only if it was written here and the ticks agree: else it is repaired first.
with me as materialized (
    select pg_current_xact_id()::text::bigint as xid, pg_current_snapshot() as now,
           greatest(pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                    nullif(current_setting('faststream_outbox.ended', true), '')::bigint) as dead
), head as materialized (
    select h.id, h.high, h.tick, h.snapshot, h.snapshot::pg_snapshot as before, h.lows, h.highs, h.floor, h.round,
           h.reach, coalesce(h.looked_bound, -1) as looked_bound, coalesce(h.looked_lo, 0) as looked_lo, h.origin, h.at
    from {head} h
    where h.origin = :place::text || pg_relation_filenode('{sequence_name}'::regclass)::text
      and h.tick >= coalesce((select max(t.tick) from {ticks} t), 0)
), since as materialized (
    -- The smallest xid that may have ended since; 0 where nothing is known.
    select case when h.before is null or pg_snapshot_xmax(h.before)::text::bigint > me.xid then 0
                else coalesce((select min(x::text::bigint) from pg_snapshot_xip(h.before) x
                               where pg_visible_in_snapshot(x, me.now)),
                              pg_snapshot_xmax(h.before)::text::bigint) end as xid
    from head h, me
), due as materialized (
    -- Gaps that may have filled: in front of anything fresh.
    select o.bound, o.lo, o.lows, o.highs,
           sum(cardinality(o.lows)) over (order by o.bound, o.lo) - cardinality(o.lows) as before
    from (
        select b.* from {gap_table} b
        where b.bound >= (select floor from head) and b.bound > (select xid from since)
          and (b.bound, b.lo) > ((select looked_bound from head), (select looked_lo from head))
        order by b.bound, b.lo
        limit :ranges::int
    ) o
), over as materialized (
    -- Gaps that cannot have filled since they were looked at, and whose owners are gone: some of them, not read.
    select b.bound, b.lo from {gap_table} b
    where b.bound >= (select floor from head)
      and b.bound <= least((select xid from since), (select dead from me))
    order by b.bound, b.lo
    limit :sweep::int
), looked as materialized (
    select d.bound, d.lo, d.lows, d.highs from due d where d.before < :ranges::int
), slice as materialized (
    select n.due >= :ranges::int or n.due > n.looked or cardinality(h.lows) > :ranges::int as is_cut
    from head h, (select (select count(*) from due) as due, (select count(*) from looked) as looked) n
), ranges as materialized (
    select k.bound, k.lo as first, r.lo, r.hi
    from looked k cross join lateral unnest(k.lows, k.highs) r (lo, hi)
    union all
    select me.xid, h.lows[1], r.lo, r.hi
    from me, slice s, head h cross join lateral unnest(h.lows, h.highs) r (lo, hi)
    where not s.is_cut
), filled as materialized (
    select r.bound, r.first, r.lo, r.hi, p.position
    from (select * from ranges order by lo) r
    cross join lateral (
        select l.position from {log} l where l.position between r.lo and r.hi order by l.position limit :limit::int
    ) p
    order by r.lo, p.position
    limit :limit::int
), late as materialized (
    select i.bound, i.first, i.lo, i.hi, i.position
    from (
        select f.*, sum(f.begins) over (order by f.position) as island
        from (select f.*, case when f.position = lag(f.position) over (order by f.position) + 1 then 0 else 1 end
                          as begins
              from filled f) f
    ) i
    where i.island <= :islands::int
), cut as materialized (
    -- Late messages beyond the limit come before anything fresh: what they caused must not overtake them.
    select s.is_cut or n.is_full as is_cut, n.is_full, n.last
    from slice s, (
        select (select count(*) from filled) >= :limit::int or (select count(*) from filled) > count(*) as is_full,
               coalesce(max(position), 0) as last
        from late
    ) n
), visible as materialized (
    select l.position from {log} l
    where l.position > (select high from head) and not (select is_cut from cut)
      and l.position <= (select coalesce(reach, 9223372036854775807) from head)
      -- Nobody has drawn a number so far ahead. Whoever wrote it by hand would move those of all who come later.
      and l.position < (select least(high, 9223371036854775807) + 1000000000000 from head)
    order by l.position
    limit :limit::int
), fresh as materialized (
    select i.position
    from (
        select v.position, sum(v.begins) over (order by v.position) as island
        from (select v.position,
                     case when v.position = lag(v.position) over (order by v.position) + 1 then 0 else 1 end as begins
              from visible v) v
    ) i
    where i.island <= :islands::int
), islands as materialized (
    select min(i.position) as lo, max(i.position) as hi
    from (
        select f.position, f.position - row_number() over (order by f.position) as island
        from (select position from late union all select position from fresh) f
    ) i
    group by i.island
), made as (
    insert into {ticks} (tick, lows, highs, count)
    select h.tick + 1, array_agg(r.lo order by r.lo), array_agg(r.hi order by r.lo), sum(r.hi - r.lo + 1)
    from islands r, head h
    group by h.tick
    returning tick, count
), touched as materialized (
    select k.bound, k.lo as first
    from looked k, me
    where k.bound <= me.dead or (k.bound, k.lo) in (select a.bound, a.first from late a)
    union all
    select o.bound, o.lo from over o
), pieces as materialized (
    -- What is left of gaps: between late messages, and where nobody has looked yet or an owner may live.
    select x.bound, x.first, x.lo, x.hi
    from me, cut c, (
        select a.bound, a.first, coalesce(lag(a.position) over w + 1, a.lo) as lo, a.position - 1 as hi
        from late a window w as (partition by a.lo order by a.position)
        union all
        select a.bound, a.first, max(a.position) + 1, a.hi from late a group by a.bound, a.first, a.lo, a.hi
        union all
        select r.bound, r.first, r.lo, r.hi
        from ranges r
        where r.lo not in (select a.lo from late a)
          and (r.bound = (select xid from me) or (r.bound, r.first) in (select t.bound, t.first from touched t))
    ) x
    where x.lo <= x.hi and (x.bound > me.dead or (c.is_full and x.hi > c.last))
), kept as (
    -- From the floor on, also where the planner takes the table for empty and reads all of it: old versions lie below.
    update {gap_table} g set lows = p.lows, highs = p.highs
    from (select p.bound, p.first, array_agg(p.lo order by p.lo) as lows, array_agg(p.hi order by p.lo) as highs
          from pieces p group by p.bound, p.first) p
    where g.bound = p.bound and g.lo = p.first and g.bound >= (select floor from head)
), ended as (
    delete from {gap_table} g using touched t
    where g.bound = t.bound and g.lo = t.first and g.bound >= (select floor from head)
      and (t.bound, t.first) not in (select p.bound, p.first from pieces p)
), bounded as (
    insert into {gap_table} (bound, lo, lows, highs, since)
    select me.xid, min(n.lo), array_agg(n.lo order by n.lo), array_agg(n.hi order by n.lo), h.at
    from me, head h, (
        select u.lo, u.hi, (row_number() over (order by u.lo) - 1) / 1000 as part
        from (
            select p.lo, p.hi from pieces p where p.bound = (select xid from me)
            union all
            select r.lo, r.hi from slice s, head h cross join lateral unnest(h.lows, h.highs) r (lo, hi) where s.is_cut
        ) u
    ) n
    group by n.part, me.xid, h.at
), opened as materialized (
    select array_agg(n.lo order by n.lo) as lows, array_agg(n.hi order by n.lo) as highs
    from (
        select coalesce(lag(f.position) over (order by f.position), h.high) + 1 as lo, f.position - 1 as hi
        from fresh f, head h
    ) n
    where n.lo <= n.hi
), last as materialized (
    -- The last gap that this slice has done with.
    select k.bound, k.lo
    from looked k, cut c
    where not c.is_full or k.highs[cardinality(k.highs)] <= c.last
    order by k.bound desc, k.lo desc
    limit 1
), moved as (
    insert into {head_table} (id, high, tick, snapshot, lows, highs, floor, round, reach, looked_bound, looked_lo,
                              origin, drawn)
    select h.id + 1, n.high, coalesce((select tick from made), h.tick),
           case when c.is_cut then h.snapshot else coalesce(h.round, me.now::text) end,
           coalesce(o.lows, '{}'), coalesce(o.highs, '{}'),
           -- It may lie below the first one: then it is found by the next tick.
           least(me.xid, (select b.bound from {gap_table} b where b.bound >= h.floor order by b.bound limit 1)),
           case when c.is_cut then coalesce(h.round, me.now::text) end,
           case when c.is_cut then coalesce(h.reach, nullif(current_setting('faststream_outbox.drawn', true), '')::bigint, 0) end,
           case when c.is_cut then coalesce((select bound from last), h.looked_bound) end,
           case when c.is_cut then coalesce((select lo from last), h.looked_lo) end,
           h.origin, n.high
    from me, cut c, head h, opened o,
         (select coalesce((select max(position) from fresh), (select high from head)) as high) n
    returning high, tick
), old as (
    -- By its number, however few rows the planner expects among the old versions.
    delete from {head_table} n where n.id = (select h.id from head h)
), notified as (
    select pg_notify(:channel::text, tick::text) from made
)
select m.tick, coalesce((select count from made), 0) as positions, m.high, (select count(*) from late) as late,
       (select count(*) from notified) as notified,
       c.is_cut or h.reach is not null or (select count(*) from visible) >= :limit::int
       or (select count(*) from visible) > (select count(*) from fresh) as has_more,
       (select count(*) from over) >= :sweep::int as has_to_sweep
from moved m, cut c, head h

-- name: advance_sequence
-- Moves the sequence behind what is already in the log, as after a copy that did not carry sequences.
-- Runs after the head was locked, so that one does it at a time. Publishers draw meanwhile: numbers are drawn too, and
-- so it never goes back. It is set only where it lies so far behind that nobody can have come close.
select m.drawn,
       case when m.high - m.drawn <= 100000
            then (select max(nextval('{sequence_name}')) from generate_series(1, m.high - m.drawn))
            else setval('{sequence_name}', m.high) end as moved_to
from (
    select (select case when s.is_called then s.last_value else 0 end from {sequence} s) as drawn,
           greatest(h.high, (select max(l.position) from {log} l
                             where l.position < least(coalesce(h.high, 0), 9223371036854775807) + 1000000000000))
               as high
    from (select max(n.high) as high from {head} n) h
) m
where m.high > m.drawn
