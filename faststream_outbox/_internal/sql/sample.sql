-- name: lock_sample
-- A row, if nobody else asks for the gauges of this fleet; until the end of the transaction.
select 1 where pg_try_advisory_xact_lock(hashtextextended(:name::text, 1872))

-- name: rows
-- How many rows of each table live and are dead, as the server has counted; those that are not there are left out.
select asked.name as table_name, stats.n_live_tup::float8 as live, stats.n_dead_tup::float8 as dead
from unnest(:tables::text[]) as asked (name)
join pg_stat_all_tables stats on stats.relid = to_regclass(asked.name)
