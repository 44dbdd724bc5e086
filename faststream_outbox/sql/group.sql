-- name: make_group
-- Gives a group its first span: every slot, from a place in the log on.
insert into {offsets} (consumer_group, uri, lo, hi, tick, position)
values (:group::text, :uri::text, 0, 255, :tick::bigint, :position::bigint)
on conflict do nothing

-- name: spans
-- The spans of a group, and whether anybody may take them.
select o.lo, o.hi, o.tick, o.position, o.epoch, o.owner, (o.owner is null or o.until < clock_timestamp()) as is_free
from {offsets} o
where o.consumer_group = :group::text and o.uri = :uri::text
order by o.lo

-- name: take_range
-- Leases the free spans that lie within a range of slots; one that a transaction is about to move is not free.
-- An owner that did not give its span back has died: that is told, and counts against the message that was noted under
-- its epoch.
with free as materialized (
    select o.lo, o.owner is not null and o.owner <> :me::uuid as died
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo >= :lo::smallint and o.hi <= :hi::smallint
      and (o.owner is null or o.owner = :me::uuid or o.until < clock_timestamp())
    for update skip locked
)
update {offsets} o
set owner = :me::uuid, until = clock_timestamp() + make_interval(secs => :ttl::float8), epoch = o.epoch % 9223372036854775807 + 1,
    updated_at = clock_timestamp(),
    crashes = least(10000, o.crashes + case when f.died and o.suspect_epoch = o.epoch then 1 else 0 end)
from free f
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = f.lo
returning o.lo, o.hi, o.tick, o.position, o.epoch, f.died, o.suspect, o.crashes

-- name: cut_span
-- Makes two spans of one that is ours or free; whoever held it before can move neither.
-- Not while somebody puts the whole group elsewhere: that must not miss the new one.
with gate as materialized (
    select where pg_try_advisory_xact_lock(hashtextextended(:group::text || chr(31) || :uri::text, 1869))
), free as materialized (
    select o.lo
    from gate, {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = :lo::smallint and o.hi = :hi::smallint
      and o.epoch = :epoch::bigint and (o.owner is null or o.owner = :me::uuid or o.until < clock_timestamp())
    for update of o skip locked
), cut as (
    update {offsets} o
    set hi = :at::smallint - 1, epoch = o.epoch % 9223372036854775807 + 1,
        suspect_epoch = case when o.suspect_epoch = o.epoch then o.epoch % 9223372036854775807 + 1 end
    from free f
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = f.lo
    returning o.*
)
insert into {offsets} (consumer_group, uri, lo, hi, tick, position, epoch, owner, until, suspect, suspect_epoch, crashes)
select c.consumer_group, c.uri, :at::smallint, :hi::smallint, c.tick, c.position, c.epoch, c.owner, c.until, c.suspect,
       c.suspect_epoch, c.crashes
from cut c
returning epoch

-- name: join_spans
-- Makes one span of neighbours that are ours and have come equally far.
with gate as materialized (
    select where pg_try_advisory_xact_lock(hashtextextended(:group::text || chr(31) || :uri::text, 1869))
), held as materialized (
    select o.lo, o.hi, o.tick, o.position, o.suspect, o.crashes
    from gate, {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[]) a (lo, epoch) on o.lo = a.lo and o.epoch = a.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update of o skip locked
), whole as materialized (
    select min(h.lo) as lo, max(h.hi) as hi, (array_agg(h.suspect order by h.crashes desc))[1] as suspect,
           max(h.crashes) as crashes
    from held h
    having count(*) = cardinality(:los::smallint[]) and count(distinct (h.tick, h.position)) = 1
), gone as (
    delete from {offsets} o using whole w
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo > w.lo and o.hi <= w.hi
)
update {offsets} o
set hi = w.hi, epoch = o.epoch % 9223372036854775807 + 1, suspect = w.suspect, suspect_epoch = null, crashes = w.crashes
from whole w
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = w.lo
returning o.lo, o.hi, o.tick, o.position, o.epoch

-- name: note
-- Notes which message of a span is about to run, or that none is; how often an owner has died with it.
update {offsets} o
set suspect = :suspect::bigint,
    suspect_epoch = case when :suspect::bigint is not null then o.epoch end,
    crashes = case when o.suspect = :suspect::bigint then o.crashes else 0 end
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = :lo::smallint and o.epoch = :epoch::bigint
  and o.owner = :me::uuid
returning o.crashes

-- name: release_spans
-- Gives leases back; a row that somebody has locked is not ours any more.
with held as materialized (
    select o.lo
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[]) a (lo, epoch) on o.lo = a.lo and o.epoch = a.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update of o skip locked
)
update {offsets} o
set owner = null, until = null, updated_at = clock_timestamp()
from held h
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = h.lo
returning o.lo

-- name: renew_spans
-- Lets leases begin anew, and returns those that are still ours.
-- One whose cursor a handler's transaction is moving is left alone: nobody can take it before that transaction ends.
with ours as materialized (
    select o.lo, o.epoch
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[]) a (lo, epoch) on o.lo = a.lo and o.epoch = a.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
), idle as materialized (
    select o.lo
    from {offsets} o
    join ours u on o.lo = u.lo and o.epoch = u.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update of o skip locked
), renewed as (
    update {offsets} o
    set until = clock_timestamp() + make_interval(secs => :ttl::float8), updated_at = clock_timestamp()
    from idle i
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = i.lo
)
select lo from ours

-- name: advance
-- Moves cursors that are ours, and with them puts messages aside; what is not ours is left alone.
-- So is a cursor that does not stand where it is known to, or whose tick is not the one that was read: the database is
-- a backup, or a standby that was behind. One that stands there already was moved by an earlier try, whose answer was
-- lost, and what that try put aside was put aside with it.
with mine as materialized (
    select o.lo, o.hi, a.tick, a.position, (o.tick, o.position) = (a.from_tick, a.from_position) as is_first
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[], :ticks::bigint[], :positions::bigint[], :stamps::timestamptz[],
                :from_ticks::bigint[], :from_positions::bigint[])
         a (lo, epoch, tick, position, stamp, from_tick, from_position)
      on o.lo = a.lo and o.epoch = a.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
      and ((o.tick, o.position) = (a.from_tick, a.from_position)
           or (:again::boolean and (o.tick, o.position) = (a.tick, a.position)))
      and (a.tick = a.from_tick or a.stamp = (select t.at from {ticks} t where t.tick = a.tick))
    for update of o
), moved as (
    update {offsets} o
    set tick = m.tick, position = m.position, updated_at = clock_timestamp(),
        suspect = null, suspect_epoch = null, crashes = 0,
        owner = case when :release::boolean then null else o.owner end,
        until = case when :release::boolean then null
                     else clock_timestamp() + make_interval(secs => :ttl::float8) end
    from mine m
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = m.lo
    returning o.lo
), aside as (
    insert into {aside} (consumer_group, uri, position, tick, slot, key, state, attempts, due, first_attempt_at,
                         error_type, error_message, traceback)
    select :group::text, :uri::text, s.position, s.tick, s.slot, s.key, s.state, s.attempts,
           clock_timestamp() + make_interval(secs => s.delay),
           case when s.attempts > 0 then clock_timestamp() end, s.error_type, s.error_message, s.traceback
    from unnest(:aside_positions::bigint[], :aside_ticks::bigint[], :aside_slots::smallint[], :aside_keys::text[],
                :aside_states::text[], :aside_attempts::int[], :aside_delays::float8[], :aside_types::text[],
                :aside_messages::text[], :aside_tracebacks::text[])
         s (position, tick, slot, key, state, attempts, delay, error_type, error_message, traceback)
    join mine m on m.is_first and s.slot between m.lo and m.hi
    on conflict (consumer_group, uri, position) do nothing
)
select m.lo from moved m

-- name: move
-- As advance, with nothing to put aside; a row that somebody has locked is not ours any more.
with a as materialized (
    select o.lo, u.tick, u.position
    from {offsets} o
    join unnest(:los::smallint[], :epochs::bigint[], :ticks::bigint[], :positions::bigint[], :stamps::timestamptz[],
                :from_ticks::bigint[], :from_positions::bigint[])
         u (lo, epoch, tick, position, stamp, from_tick, from_position)
      on o.lo = u.lo and o.epoch = u.epoch
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
      and ((o.tick, o.position) = (u.from_tick, u.from_position)
           or (:again::boolean and (o.tick, o.position) = (u.tick, u.position)))
      and (u.tick = u.from_tick or u.stamp = (select t.at from {ticks} t where t.tick = u.tick))
    for update of o skip locked
)
update {offsets} o
set tick = a.tick, position = a.position, updated_at = clock_timestamp(),
    suspect = null, suspect_epoch = null, crashes = 0,
    owner = case when :release::boolean then null else o.owner end,
    until = case when :release::boolean then null else clock_timestamp() + make_interval(secs => :ttl::float8) end
from a
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = a.lo
returning o.lo

-- name: lock_spans
-- Holds spans that are ours until the transaction ends: whoever renews or takes passes over them meanwhile.
select o.lo
from {offsets} o
join unnest(:los::smallint[], :epochs::bigint[]) a (lo, epoch) on o.lo = a.lo and o.epoch = a.epoch
where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
for update of o

-- name: standing
-- Where cursors stand and under which lease, and whether each could be locked.
-- What a transaction still holds may yet end either way. The locks last until the messages that were set aside have
-- been looked at too.
with free as materialized (
    select o.lo, o.tick, o.position, o.epoch, o.owner
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = any (:los::smallint[])
    for update skip locked
)
select o.lo, f.tick, f.position, f.epoch, f.owner, f.lo is not null
from {offsets} o
left join free f on f.lo = o.lo
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = any (:los::smallint[])

-- name: still_aside
-- Which of these messages are set aside, and how often they have failed.
select a.position, a.state, a.attempts
from {aside} a
where a.consumer_group = :group::text and a.uri = :uri::text and a.position = any (:positions::bigint[])

-- name: release_all
-- Gives back whatever a member holds, also what it does not know of.
with held as materialized (
    select o.lo
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update skip locked
)
update {offsets} o
set owner = null, until = null, updated_at = clock_timestamp()
from held h
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = h.lo
returning o.lo

-- name: heartbeat
-- Says that a member lives, forgets those that do not, and counts the living.
-- Waits for nobody: two that take each other for dead would wait for each other.
with mine as (
    insert into {members} as m (consumer_group, uri, member, until)
    values (:group::text, :uri::text, :me::uuid, clock_timestamp() + make_interval(secs => :ttl::float8))
    on conflict (consumer_group, uri, member) do update set until = excluded.until
    returning xmax = 0 as is_new
), dead as materialized (
    select d.member
    from {members} d
    where d.consumer_group = :group::text and d.uri = :uri::text and d.until < clock_timestamp()
      and d.member <> :me::uuid
    for update skip locked
), gone as (
    delete from {members} d using dead e
    where d.consumer_group = :group::text and d.uri = :uri::text and d.member = e.member
)
select 1 + count(*), (select is_new from mine)
from {members} o
where o.consumer_group = :group::text and o.uri = :uri::text and o.member <> :me::uuid
  and o.until >= clock_timestamp()

-- name: leave
-- A member is no more.
delete from {members} m
where m.consumer_group = :group::text and m.uri = :uri::text and m.member = :me::uuid
returning m.member

-- name: call
-- Tells the readers of this log that something has changed.
select pg_notify(:channel::text, :payload::text)
