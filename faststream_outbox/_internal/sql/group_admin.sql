-- name: list_groups
-- Groups that have a place in the log, a member, or something deferred, and how they are.
-- How many living members, the slots that they hold, since when each is paused, its last sign of life, and what waits,
-- by state, counted up to a limit.
-- A descent of the index for each group that has something deferred, however much that is.
with recursive waiting (consumer_group, uri) as (
    (select a.consumer_group, a.uri from {deferred} a order by a.consumer_group, a.uri limit 1)
    union all
    select n.consumer_group, n.uri
    from waiting w
    cross join lateral (
        select a.consumer_group, a.uri from {deferred} a
        where (a.consumer_group, a.uri) > (w.consumer_group, w.uri)
        order by a.consumer_group, a.uri
        limit 1
    ) n
), known as materialized (
    select k.consumer_group, k.uri
    from (select o.consumer_group, o.uri from {offsets} o
          union select m.consumer_group, m.uri from {members} m
          union select w.consumer_group, w.uri from waiting w) k
    where (:group::text is null or k.consumer_group = :group::text) and (:uri::text is null or k.uri = :uri::text)
)
select k.consumer_group, k.uri, l.members, coalesce(s.slots, 0) as slots,
       case when s.paused_at is not null then least(greatest(s.paused_at, '0002-01-01Z'), '9998-12-31Z') end
           as paused_since,
       case when s.updated_at is not null then least(greatest(s.updated_at, '0002-01-01Z'), '9998-12-31Z') end
           as last_seen,
       c.parked, c.deferred, c.retrying, c.parked + c.deferred + c.retrying >= :most::int as has_more
from known k
cross join lateral (
    select sum(o.hi - o.lo + 1) filter (where o.owner is not null and o.until >= clock_timestamp())::int as slots,
           max(o.paused_at) filter (where o.lo = 0) as paused_at, max(o.updated_at) as updated_at
    from {offsets} o
    where o.consumer_group = k.consumer_group and o.uri = k.uri
) s
cross join lateral (
    select count(*)::int as members
    from (select m.member from {members} m
          where m.consumer_group = k.consumer_group and m.uri = k.uri and m.until >= clock_timestamp()
          union
          select o.owner from {offsets} o
          where o.consumer_group = k.consumer_group and o.uri = k.uri and o.owner is not null
            and o.until >= clock_timestamp()) living
) l
cross join lateral (
    select count(*) filter (where a.state = 'parked')::int as parked,
           count(*) filter (where a.state = 'deferred')::int as deferred,
           count(*) filter (where a.state = 'retry')::int as retrying
    from (select w.state from {deferred} w where w.consumer_group = k.consumer_group and w.uri = k.uri limit :most::int) a
) c
order by k.consumer_group, k.uri

-- name: pause_group
-- Pauses a group for every process until it is resumed.
update {offsets} o set paused_at = clock_timestamp()
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = 0 and o.paused_at is null
returning o.lo

-- name: resume_group
-- Ends the pause of a group; its time without a sign of life begins now.
update {offsets} o set paused_at = null, updated_at = clock_timestamp()
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = 0 and o.paused_at is not null
returning o.lo

-- name: is_paused
-- Whether a group is paused; no row where it has no place in the log.
select o.paused_at is not null
from {offsets} o
where o.consumer_group = :group::text and o.uri = :uri::text and o.lo = 0

-- name: paused_among
-- Those of some groups that are paused, by their places in the list.
select n.number
from unnest(:groups::text[], :uris::text[]) with ordinality n (consumer_group, uri, number)
join {offsets} o on o.consumer_group = n.consumer_group and o.uri = n.uri and o.lo = 0
where o.paused_at is not null

-- name: paused_groups
-- Groups that are paused.
select o.consumer_group, o.uri from {offsets} o where o.lo = 0 and o.paused_at is not null order by 1, 2

-- name: delete_waiting
-- Ends the next messages that a group has deferred, unless somebody reads it; whether it may, and how many.
with may as materialized (
    select :force::boolean or not exists (
        select from {members} m
        where m.consumer_group = :group::text and m.uri = :uri::text and m.until >= clock_timestamp()
    ) and not exists (
        select from {offsets} o
        where o.consumer_group = :group::text and o.uri = :uri::text and o.owner is not null
          and o.until >= clock_timestamp()
    ) as go
), gone as (
    delete from {deferred} a
    where a.consumer_group = :group::text and a.uri = :uri::text
      and a.position = any (array(
          select w.position from {deferred} w, may m
          where m.go and w.consumer_group = :group::text and w.uri = :uri::text
          order by w.position
          limit :limit::int))
    returning 1
)
select (select m.go from may m) as may, (select count(*) from gone) as gone

-- name: delete_group
-- Deletes a group's places, members and whatever else it has deferred, unless somebody reads it.
-- Returns whether it may, and how many messages were deferred. Runs after the group was locked, so that nobody cuts
-- its spans meanwhile.
with may as materialized (
    select :force::boolean or not exists (
        select from {members} m
        where m.consumer_group = :group::text and m.uri = :uri::text and m.until >= clock_timestamp()
    ) and not exists (
        select from {offsets} o
        where o.consumer_group = :group::text and o.uri = :uri::text and o.owner is not null
          and o.until >= clock_timestamp()
    ) as go
), places as (
    delete from {offsets} o using may m where m.go and o.consumer_group = :group::text and o.uri = :uri::text
), members as (
    delete from {members} d using may m where m.go and d.consumer_group = :group::text and d.uri = :uri::text
), gone as (
    delete from {deferred} a using may m where m.go and a.consumer_group = :group::text and a.uri = :uri::text
    returning 1
)
select (select m.go from may m) as may, (select count(*) from gone) as gone

-- name: slots_by_owner
-- Worker ids of the members that read now, and how many slots each holds in all groups.
select left(o.owner::text, 8) as worker_id, sum(o.hi - o.lo + 1)::bigint as slots
from {offsets} o
where o.owner is not null and o.until >= clock_timestamp()
group by 1
