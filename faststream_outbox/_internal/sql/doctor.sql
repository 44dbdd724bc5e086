-- name: server
-- The server as this role sees it, and whether sessions of other roles are shown to it.
select current_setting('server_version_num')::int as version, pg_is_in_recovery() as is_standby,
       current_user::text as role, current_database()::text as database,
       pg_has_role('pg_read_all_stats', 'usage') as sees_all

-- name: backend
-- The server process that runs this.
select pg_backend_pid()

-- name: clock
-- What time it is on the server.
select clock_timestamp()

-- name: settings
-- Settings of the server as they are for this role and database, and where each comes from.
select s.name, s.setting, s.source from pg_settings s where s.name = any (:names::text[]) order by s.name

-- name: relations
-- The tables and their parts: what kind, how they are vacuumed, dead rows, and how old their oldest transaction number is.
-- From the catalog and the statistics alone, without a lock that a migration would keep us waiting for.
with named as materialized (
    select distinct to_regclass(n.name)::oid as oid from unnest(:tables::text[]) n (name)
), whole as materialized (
    select n.oid, null::oid as parent from named n where n.oid is not null
    union all
    select i.inhrelid, i.inhparent from named n join pg_inherits i on i.inhparent = n.oid
)
select format('%I.%I', s.nspname, c.relname) as name, s.nspname::text as schema, c.relname::text as bare_name,
       (select format('%I.%I', ps.nspname, p.relname)
        from pg_class p join pg_namespace ps on ps.oid = p.relnamespace where p.oid = w.parent) as parent,
       c.relkind = 'p' as is_partitioned, c.relpersistence = 'u' as is_unlogged,
       coalesce(c.reloptions, '{}')::text[] as options, greatest(c.reltuples, 0)::float8 as estimated_rows,
       pg_stat_get_dead_tuples(c.oid) as dead_rows, pg_stat_get_live_tuples(c.oid) as live_rows,
       extract(epoch from clock_timestamp()
               - greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)))::float8
           as vacuumed_seconds_ago,
       case when c.relfrozenxid <> '0' then greatest(age(c.relfrozenxid), case when t.relfrozenxid <> '0'
            then age(t.relfrozenxid) end) end as frozen_age,
       c.relpages::bigint * current_setting('block_size')::bigint as bytes,
       case when c.relispartition then pg_get_expr(c.relpartbound, c.oid) end as bound
from whole w
join pg_class c on c.oid = w.oid
join pg_namespace s on s.oid = c.relnamespace
left join pg_class t on t.oid = c.reltoastrelid
order by 1

-- name: indexes
-- Indexes of the tables and their parts: whether each can be used, is being built, and was ever read.
with named as materialized (
    select distinct to_regclass(n.name)::oid as oid from unnest(:tables::text[]) n (name)
), whole as materialized (
    select n.oid from named n where n.oid is not null
    union
    select i.inhrelid from named n join pg_inherits i on i.inhparent = n.oid
)
select format('%I.%I', s.nspname, x.relname) as name, format('%I.%I', ts.nspname, t.relname) as table_name,
       t.relname::text as bare_table, x.relkind = 'I' as is_partitioned,
       i.indisvalid and i.indisready and i.indislive as is_usable, i.indisunique as is_unique,
       exists (select from pg_constraint k where k.conindid = i.indexrelid) as is_constraint,
       exists (select from pg_stat_progress_create_index b
               where b.datname = current_database() and (b.relid = i.indrelid or b.relid is null)) as is_building,
       array(select coalesce(a.attname::text, '')
             from unnest(i.indkey::int2[]) with ordinality k (attnum, place)
             left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
             order by k.place) as columns,
       pg_stat_get_numscans(i.indexrelid) as scans, pg_stat_get_tuples_inserted(i.indrelid) as inserted_rows,
       x.relpages::bigint * current_setting('block_size')::bigint as bytes
from whole w
join pg_index i on i.indrelid = w.oid
join pg_class x on x.oid = i.indexrelid
join pg_namespace s on s.oid = x.relnamespace
join pg_class t on t.oid = i.indrelid
join pg_namespace ts on ts.oid = t.relnamespace
order by 1

-- name: sessions
-- Sessions of this database whose transaction is open for some time and keeps dead rows, those that keep the most first.
-- Vacuum does not wait for itself. Whoever is hidden from this role has no beginning, and is not among them.
select a.pid, a.usename::text as role, a.application_name as application, a.state, left(a.query, 200) as query,
       extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds,
       greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.datname = current_database() and a.leader_pid is null
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and a.backend_type not in ('autovacuum worker', 'walsender')
  and a.xact_start < clock_timestamp() - make_interval(secs => :seconds::float8)
  and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid)
order by transactions desc, a.xact_start
limit 10

-- name: hidden_sessions
-- How many sessions of other roles in this database hold a snapshot, since when is not shown to this role.
select count(*)
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.datname = current_database() and a.xact_start is null and a.backend_type is null
  and (a.backend_xmin is not null or a.backend_xid is not null)

-- name: prepared
-- Transactions of this database that were prepared some time ago and neither committed nor rolled back.
select p.gid, p.owner::text as role, extract(epoch from clock_timestamp() - p.prepared)::float8 as seconds,
       age(p.transaction) as transactions
from pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - make_interval(secs => :seconds::float8)
order by p.prepared
limit 10

-- name: slots
-- Replication slots: what each keeps, whether somebody uses it, and since when nobody does, where the server knows.
select s.slot_name::text as name, s.slot_type as kind, s.active as is_active, s.temporary as is_temporary,
       age(s.xmin) as transactions, age(s.catalog_xmin) as catalog_transactions,
       case when s.restart_lsn is null then 0.0
            when pg_is_in_recovery() then pg_wal_lsn_diff(pg_last_wal_replay_lsn(), s.restart_lsn)::float8
            else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::float8 end as wal_bytes,
       extract(epoch from clock_timestamp() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8 as inactive_seconds
from pg_replication_slots s
order by 1

-- name: feedback
-- Standbys without a slot that keep dead rows here for their own queries.
select r.pid, r.application_name as application, r.client_addr::text as address, age(r.backend_xmin) as transactions
from pg_stat_replication r
where age(r.backend_xmin) >= :transactions::bigint
order by 4 desc
limit 10

-- name: budget
-- How many connections there may be and are: of the server, and of this database.
select current_setting('max_connections')::int as most,
       current_setting('superuser_reserved_connections')::int
       + coalesce(current_setting('reserved_connections', true)::int, 0) as reserved,
       c.used, c.of_database, d.datconnlimit as most_of_database, c.idle
from pg_database d
cross join (
    select count(*) as used, count(*) filter (where a.datname = current_database()) as of_database,
           count(*) filter (where a.state = 'idle') as idle
    from pg_stat_activity a
    where a.datid is not null and coalesce(a.backend_type, 'client backend') = 'client backend'
) c
where d.datname = current_database()

-- name: idle_in_transaction
-- Sessions of this database that do nothing for some time in a transaction that keeps no dead rows, only locks.
select a.pid, a.usename::text as role, a.application_name as application, a.state, left(a.query, 200) as query,
       extract(epoch from clock_timestamp() - a.state_change)::float8 as seconds, 0 as transactions
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.datname = current_database() and a.state like 'idle in transaction%'
  and a.backend_xmin is null and a.backend_xid is null
  and a.state_change < clock_timestamp() - make_interval(secs => :seconds::float8)
order by a.state_change
limit 10

-- name: notifications
-- How full the server's queue of notifications is, and the transactions that are open the longest.
-- One of them listens, and has not taken what was sent since it began.
select pg_notification_queue_usage()::float8 as share, a.pid, a.role, a.application, a.state, a.query, a.seconds
from (select) always
left join lateral (
    select s.pid, s.usename::text as role, s.application_name as application, s.state, left(s.query, 200) as query,
           extract(epoch from clock_timestamp() - s.xact_start)::float8 as seconds
    from pg_stat_activity s
    where s.pid <> pg_backend_pid() and s.xact_start is not null and s.backend_type = 'client backend'
    order by s.xact_start
    limit 5
) a on true
order by a.seconds desc
