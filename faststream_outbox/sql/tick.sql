-- name: make_head
-- Makes the one row of the head, if it is missing; draws no number.
insert into {head} (one, drawn) values (true, 0) on conflict do nothing

-- name: look
-- How far numbers were drawn, and how far they are sequenced; touches no message.
-- The last is the end of the log where the sequence does not reach beyond what is sequenced: normally nothing.
-- Positions that no sequence can have reached by now are a stranger's: those of all who come later would follow them.
select d.drawn, h.high, h.tick, (select g.since from {gaps} g order by g.bound limit 1),
       case when d.drawn <= coalesce(h.high, 0)
            then (select max(l.position) from {log} l
                  where l.position > coalesce(h.high, 0)
                    and l.position < least(coalesce(h.high, 0), 9223371036854775807) + 1000000000000) end
from (select case when s.is_called then s.last_value else 0 end as drawn from {sequence} s) d
left join {head} h on h.one

-- name: lock_head
-- Begins a tick, unless another one is under way.
-- An advisory lock, because it gives no xid: locking a row may give one before the last tick has ended, and that would
-- be too small a bound for the gaps that the last tick found.
select 1 where pg_try_advisory_xact_lock((1869968492::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: wait_for_head
-- Begins a tick, after the one that is under way.
select pg_advisory_xact_lock((1869968492::bigint << 32) + '{sequence_name}'::regclass::oid::bigint)

-- name: tick
-- Puts newly visible positions into a tick; what is drawn and not seen becomes or stays a gap.
-- Runs after the head was locked, in the same transaction, so that its one snapshot is younger than the last tick.
-- A gap is forgotten only when every transaction that could own it, one with a smaller xid than its bound, has ended
-- before this snapshot and the gap was looked at with it. The bound is the xid of a later tick: it was given out after
-- the scan that missed the number. The snapshot's xmax would not do: it may be smaller than an xid in progress.
-- A gap is looked at only if a transaction below its bound has ended since the last tick: else it cannot have filled.
-- A head that lies behind the ticks was made anew, before data was restored that had another: the ticks are the truth.
with me as materialized (
    select pg_current_xact_id()::text::bigint as xid, pg_current_snapshot() as now,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint as dead
), head as materialized (
    select case when n.tick > h.tick
                then greatest(h.high, (select max(t.highs[cardinality(t.highs)]) from {ticks} t))
                else h.high end as high,
           greatest(h.tick, n.tick) as tick, h.snapshot::pg_snapshot as before
    from {head} h, (select max(t.tick) as tick from {ticks} t) n
    where h.one
), since as materialized (
    -- The smallest xid that may have ended since; 0 where the last snapshot was another cluster's.
    select case when h.before is null or pg_snapshot_xmax(h.before)::text::bigint > me.xid then 0
                else coalesce((select min(x::text::bigint) from pg_snapshot_xip(h.before) x
                               where pg_visible_in_snapshot(x, me.now)),
                              pg_snapshot_xmax(h.before)::text::bigint) end as xid
    from head h, me
), late as materialized (
    select g.id as gap, g.lo, g.hi, g.bound, g.since, p.position
    from (
        -- Two ranges of the index on bounds, which do not overlap.
        select o.* from {gaps} o where o.bound > (select xid from since)
        union all
        select o.* from {gaps} o where o.bound <= least((select xid from since), (select dead from me))
        order by lo
    ) g
    cross join lateral (
        select l.position from {log} l where l.position between g.lo and g.hi order by l.position limit :limit::int
    ) p
    order by g.lo, p.position
    limit :limit::int
), cut as materialized (
    -- Late messages beyond the limit come before anything fresh: what they caused must not overtake them.
    select count(*) >= :limit::int as is_cut, coalesce(max(position), 0) as last from late
), fresh as materialized (
    select l.position from {log} l
    where l.position > (select high from head) and not (select is_cut from cut)
      -- Nobody has drawn a number so far ahead. Whoever wrote it by hand would move those of all who come later.
      and l.position < (select least(high, 9223371036854775807) + 1000000000000 from head)
    order by l.position
    limit :limit::int
), ranges as materialized (
    select min(i.position) as lo, max(i.position) as hi
    from (
        select f.position, f.position - row_number() over (order by f.position) as island
        from (select position from late union all select position from fresh) f
    ) i
    group by i.island
), made as (
    insert into {ticks} (tick, lows, highs, count)
    select h.tick + 1, array_agg(r.lo order by r.lo), array_agg(r.hi order by r.lo), sum(r.hi - r.lo + 1)
    from ranges r, head h
    group by h.tick
    returning tick, count
), bounded as (
    update {gaps} g set bound = me.xid from me
    where g.bound > me.xid and g.id not in (select gap from late)
), ended as (
    delete from {gaps} g using (
        select gap as id from late
        union
        select o.id from {gaps} o, cut c
        where o.bound <= (select dead from me) and not (c.is_cut and o.hi > c.last)
    ) d
    where g.id = d.id
), remaining as (
    insert into {gaps} (lo, hi, bound, since)
    select r.lo, r.hi, least(r.bound, me.xid), r.since
    from me, cut c, (
        select coalesce(lag(l.position) over w + 1, l.lo) as lo, l.position - 1 as hi, l.bound, l.since
        from late l window w as (partition by l.gap order by l.position)
        union all
        select max(l.position) + 1, l.hi, l.bound, l.since from late l group by l.gap, l.hi, l.bound, l.since
    ) r
    where r.lo <= r.hi and (r.bound > me.dead or (c.is_cut and r.hi > c.last))
), opened as (
    insert into {gaps} (lo, hi)
    select n.lo, n.hi
    from (
        select coalesce(lag(f.position) over (order by f.position), h.high) + 1 as lo, f.position - 1 as hi
        from fresh f, head h
    ) n
    where n.lo <= n.hi
), moved as (
    update {head} h
    set high = coalesce((select max(position) from fresh), b.high),
        tick = coalesce((select tick from made), b.tick),
        snapshot = case when c.is_cut then h.snapshot else me.now::text end
    from me, cut c, head b
    where h.one
    returning h.high, h.tick
), told as (
    select pg_notify(:channel::text, tick::text) from made
)
select m.tick, coalesce((select count from made), 0), m.high, (select count(*) from late), (select count(*) from told)
from moved m

-- name: ticks_after
-- The ticks from one on, in order.
select t.tick, t.lows, t.highs, t.count, t.at
from {ticks} t
where t.tick >= :tick::bigint
order by t.tick
limit :limit::int

-- name: advance_sequence
-- Moves the sequence behind what is already in the log, as after a copy that did not carry sequences.
-- Runs after the head was locked, so that one does it at a time. Publishers draw meanwhile: numbers are drawn too, and
-- so it never goes back. It is set only where it lies so far behind that nobody can have come close.
select m.drawn,
       case when m.high - m.drawn <= 100000
            then (select max(nextval('{sequence_name}')) from generate_series(1, m.high - m.drawn))
            else setval('{sequence_name}', m.high) end
from (
    select (select case when s.is_called then s.last_value else 0 end from {sequence} s) as drawn,
           greatest(h.high, (select max(l.position) from {log} l
                             where l.position < least(coalesce(h.high, 0), 9223371036854775807) + 1000000000000))
               as high
    from (select max(high) as high from {head}) h
) m
where m.high > m.drawn

-- name: open_gaps
-- Gaps that are open for some time, oldest first, with the transactions that may own them.
select g.lo, g.hi, g.since, a.pid, a.datname, a.usename, a.application_name, a.state, a.xact_start, a.backend_xid::text
from (select o.* from {gaps} o where o.since < clock_timestamp() - make_interval(secs => :age::float8)
      order by o.since limit 100) g
left join lateral (
    select s.* from pg_stat_activity s
    where s.backend_xid is not null and s.pid <> pg_backend_pid() and s.xact_start <= g.since
      and s.datname = current_database()
) a on true
order by g.since, a.xact_start
