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
-- An owner that did not give its span back has died: that is returned, and counts against the message that was noted
-- under its epoch.
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

-- name: renew_each
-- Lets leases of some members begin anew, and returns those that are still theirs.
-- One whose cursor a handler's transaction is moving is left alone: nobody can take it before that transaction ends.
with ours as materialized (
    select u.number, u.name, u.uri, u.owner, u.lo, u.epoch, u.ttl
    from unnest(:groups::text[], :uris::text[], :owners::uuid[], :los::smallint[], :epochs::bigint[], :ttls::float8[])
         with ordinality u (name, uri, owner, lo, epoch, ttl, number)
    join {offsets} o on o.consumer_group = u.name and o.uri = u.uri and o.lo = u.lo
    where o.epoch = u.epoch and o.owner = u.owner
), idle as materialized (
    select u.name, u.uri, u.lo, u.ttl
    from ours u
    join {offsets} o on o.consumer_group = u.name and o.uri = u.uri and o.lo = u.lo
    where o.epoch = u.epoch and o.owner = u.owner
    for update of o skip locked
), renewed as (
    update {offsets} o
    set until = clock_timestamp() + make_interval(secs => i.ttl), updated_at = clock_timestamp()
    from idle i
    where o.consumer_group = i.name and o.uri = i.uri and o.lo = i.lo
)
select number from ours

-- name: advance
-- Moves cursors that are ours, and with them defers messages; what is not ours is left alone.
-- So is a cursor that does not stand where it is known to, or whose tick is not the one that was read: the database is
-- a backup, or a standby that was behind. One that stands there already was moved by an earlier try, whose answer was
-- lost, and what that try deferred was deferred with it.
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
      and (a.tick = a.from_tick or a.stamp = coalesce(
               (select t.at from {ticks} t where t.tick = a.tick),
               -- Deleted by retention, with its messages. What a server does not have yet lies at the end.
               case when a.tick < (select max(t.tick) from {ticks} t) then a.stamp end))
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
), deferral as (
    insert into {deferred} (consumer_group, uri, position, tick, slot, key, state, attempts, due, first_attempt_at,
                         error_type, error_message, traceback)
    select :group::text, :uri::text, s.position, s.tick, s.slot, s.key, s.state, s.attempts,
           clock_timestamp() + make_interval(secs => s.delay),
           case when s.attempts > 0 then clock_timestamp() end, s.error_type, s.error_message, s.traceback
    from unnest(:deferred_positions::bigint[], :deferred_ticks::bigint[], :deferred_slots::smallint[], :deferred_keys::text[],
                :deferred_states::text[], :deferred_attempts::int[], :deferred_delays::float8[], :deferred_types::text[],
                :deferred_messages::text[], :deferred_tracebacks::text[])
         s (position, tick, slot, key, state, attempts, delay, error_type, error_message, traceback)
    join mine m on m.is_first and s.slot between m.lo and m.hi
    on conflict (consumer_group, uri, position) do nothing
)
select m.lo from moved m

-- name: move
-- As advance, with nothing to defer; a row that somebody has locked is not ours any more.
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
      and (u.tick = u.from_tick or u.stamp = coalesce(
               (select t.at from {ticks} t where t.tick = u.tick),
               -- Deleted by retention, with its messages. What a server does not have yet lies at the end.
               case when u.tick < (select max(t.tick) from {ticks} t) then u.stamp end))
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

-- name: move_each
-- As move, for members of several groups that have passed over messages of others; leases are renewed elsewhere.
with a as materialized (
    select u.number, u.name, u.uri, u.lo, u.tick, u.position
    from unnest(:groups::text[], :uris::text[], :owners::uuid[], :los::smallint[], :epochs::bigint[],
                :ticks::bigint[], :positions::bigint[], :stamps::timestamptz[], :from_ticks::bigint[],
                :from_positions::bigint[])
         with ordinality u (name, uri, owner, lo, epoch, tick, position, stamp, from_tick, from_position, number)
    join {offsets} o on o.consumer_group = u.name and o.uri = u.uri and o.lo = u.lo
    where o.epoch = u.epoch and o.owner = u.owner
      and ((o.tick, o.position) = (u.from_tick, u.from_position) or (o.tick, o.position) = (u.tick, u.position))
      and (u.tick = u.from_tick or u.stamp = coalesce(
               (select t.at from {ticks} t where t.tick = u.tick),
               -- Deleted by retention, with its messages. What a server does not have yet lies at the end.
               case when u.tick < (select max(t.tick) from {ticks} t) then u.stamp end))
    for update of o skip locked
)
update {offsets} o
set tick = a.tick, position = a.position, updated_at = clock_timestamp(),
    suspect = null, suspect_epoch = null, crashes = 0
from a
where o.consumer_group = a.name and o.uri = a.uri and o.lo = a.lo
returning a.number

-- name: lock_spans
-- Holds spans that are ours until the transaction ends: whoever renews or takes passes over them meanwhile.
select o.lo
from {offsets} o
join unnest(:los::smallint[], :epochs::bigint[]) a (lo, epoch) on o.lo = a.lo and o.epoch = a.epoch
where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
for update of o

-- name: spans_still_ours
-- Where cursors stand and under which lease, and whether each could be locked.
-- What a transaction still holds may yet end either way. The locks last until the messages that were deferred have
-- been looked at too.
with free as materialized (
    select o.lo, o.tick, o.position, o.epoch, o.owner
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = any (:los::smallint[])
    for update skip locked
)
select o.lo, f.tick, f.position, f.epoch, f.owner, f.lo is not null as is_free
from {offsets} o
left join free f on f.lo = o.lo
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = any (:los::smallint[])

-- name: still_deferred
-- Which of these messages are deferred, and how often they have failed.
select a.position, a.state, a.attempts
from {deferred} a
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
select 1 + count(*) as members, (select is_new from mine) as is_new
from {members} o
where o.consumer_group = :group::text and o.uri = :uri::text and o.member <> :me::uuid
  and o.until >= clock_timestamp()

-- name: beat_each
-- Says that some members live; whether each is new.
insert into {members} as m (consumer_group, uri, member, until)
select u.name, u.uri, u.member, clock_timestamp() + make_interval(secs => u.ttl)
from unnest(:groups::text[], :uris::text[], :members::uuid[], :ttls::float8[]) u (name, uri, member, ttl)
order by u.name, u.uri, u.member
on conflict (consumer_group, uri, member) do update set until = excluded.until
returning m.member, xmax = 0 as is_new

-- name: census
-- Of some groups: how many members live, how many are dead and not forgotten, and what an operator may change, in short.
-- That is what is deferred, and a pause. What is parked counts only where it holds its key: it may be very much.
select g.number,
       (select count(*) from {members} m
        where m.consumer_group = g.name and m.uri = g.uri and m.until >= clock_timestamp()) as members,
       (select count(*) from {members} m
        where m.consumer_group = g.name and m.uri = g.uri and m.until < clock_timestamp()) as dead,
       case when g.hold
            then (select (count(*), max(a.updated_at))::text from {deferred} a
                  where a.consumer_group = g.name and a.uri = g.uri)
            -- In the order of the index that has nothing parked in it, so that it is the one that is used.
            else (select (count(*), max(w.updated_at))::text
                  from (select a.updated_at from {deferred} a
                        where a.consumer_group = g.name and a.uri = g.uri and a.state <> 'parked'
                        order by a.slot, a.key, a.tick, a.position) w) end
       || coalesce((select ' paused' from {offsets} o
                    where o.consumer_group = g.name and o.uri = g.uri and o.lo = 0 and o.paused_at is not null), '') as changes
from unnest(:groups::text[], :uris::text[], :holds::boolean[]) with ordinality g (name, uri, hold, number)

-- name: spans_of_groups
-- The spans of some groups, and whether anybody may take them.
select g.number, o.lo, o.hi, o.tick, o.position, o.epoch, o.owner,
       (o.owner is null or o.until < clock_timestamp()) as is_free
from unnest(:groups::text[], :uris::text[]) with ordinality g (name, uri, number)
join {offsets} o on o.consumer_group = g.name and o.uri = g.uri
order by g.number, o.lo

-- name: forget_dead
-- Forgets members that do not live; waits for nobody.
with dead as materialized (
    select d.consumer_group, d.uri, d.member
    from unnest(:groups::text[], :uris::text[]) g (name, uri)
    join {members} d on d.consumer_group = g.name and d.uri = g.uri
    where d.until < clock_timestamp()
    for update of d skip locked
)
delete from {members} m using dead d
where m.consumer_group = d.consumer_group and m.uri = d.uri and m.member = d.member
returning m.member

-- name: leave
-- A member is no more: gives back whatever it holds, as release_all does, and tells the others.
with held as materialized (
    select o.lo
    from {offsets} o
    where o.consumer_group = :group::text and o.uri = :uri::text and o.owner = :me::uuid
    for update skip locked
), released as (
    update {offsets} o
    set owner = null, until = null, updated_at = clock_timestamp()
    from held h
    where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = h.lo
), gone as (
    delete from {members} m
    where m.consumer_group = :group::text and m.uri = :uri::text and m.member = :me::uuid
)
select pg_notify(:channel::text, :payload::text)

-- name: call
-- Tells the readers of this log that something has changed for some groups.
select pg_notify(:channel::text, c.payload) from unnest(:payloads::text[]) c (payload)
