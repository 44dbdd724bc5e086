-- name: receive
-- Writes a receipt unless there is one, where no other transaction is about it; its transaction's id if it is new.
with turn as materialized (
    select pg_try_advisory_xact_lock(:lock::bigint) as is_ours
), made as (
    insert into {table} (consumer, source, message_id)
    select :consumer::text, :source::text, :message_id::text from turn t where t.is_ours
    on conflict do nothing
    returning pg_current_xact_id()::xid::text as xid
)
select t.is_ours, (select m.xid from made m) as xid from turn t

-- name: wait_turn
-- Waits until the transaction that is about the same message has ended.
select 1 as waited from pg_advisory_xact_lock(:lock::bigint)

-- name: try_turn
-- Whether the transaction that was about a message has ended; a row if so.
select 1 as is_over where pg_try_advisory_xact_lock(:lock::bigint)

-- name: written_by
-- Which transaction wrote a receipt; no row where there is none.
select r.xmin::text as xid from {table} r
where r.consumer = :consumer::text and r.source = :source::text and r.message_id = :message_id::text

-- name: keep_response
-- Keeps what a handler answered with the receipt that this transaction has written, and says which transaction that is.
update {table} r
set response = :body::bytea, response_type = :content_type::text, response_headers = :headers::text::jsonb
where r.consumer = :consumer::text and r.source = :source::text and r.message_id = :message_id::text
  and r.xmin::text = :xid::text
returning r.xmin::text as xid

-- name: kept_response
-- What a handler answered to a message; no row where that was not kept.
select r.response as body, r.response_type as content_type, r.response_headers::text as headers from {table} r
where r.consumer = :consumer::text and r.source = :source::text and r.message_id = :message_id::text
  and r.response is not null

-- name: lock_cleaning
-- Begins to delete old receipts, unless another process is about it; a row if so.
select 1 where pg_try_advisory_xact_lock(hashtextextended(:table::text, 1873))

-- name: clean
-- Deletes the oldest of the receipts that are old enough, a slice of them: how many there were, and how old the last is.
with slice as materialized (
    select r.ctid as place, r.received_at
    from {table} r
    where r.received_at >= coalesce(:after::timestamptz, '-infinity')
      and r.received_at < statement_timestamp() - make_interval(secs => :age::float8)
    order by r.received_at
    limit :limit::int
), gone as (
    delete from {table} where ctid = any (array(select s.place from slice s)) returning 1
)
select (select count(*) from gone) as gone, (select max(s.received_at) from slice s) as reached

-- name: consumers
-- Receipts of each consumer, counted up to a bound; a descent for each consumer's name.
with recursive names (consumer) as (
    (select r.consumer from {table} r order by r.consumer limit 1)
    union all
    select (select r.consumer from {table} r where r.consumer > n.consumer order by r.consumer limit 1)
    from names n where n.consumer is not null
)
select n.consumer, counted.receipts
from (select consumer from names where consumer is not null limit :limit::int) n
cross join lateral (
    select count(*) as receipts
    from (select 1 from {table} r where r.consumer = n.consumer limit :most::int) found
) counted
order by n.consumer

-- name: first_and_last
-- When the first and the last of the receipts that are there were written.
select case when t.first is not null then least(greatest(t.first, '0002-01-01Z'), '9998-12-31Z') end as first,
       case when t.last is not null then least(greatest(t.last, '0002-01-01Z'), '9998-12-31Z') end as last
from (select min(received_at) as first, max(received_at) as last from {table}) t

-- name: count_old
-- How many receipts are old enough to be deleted, counted up to a bound.
select count(*) as old
from (
    select 1 from {table} r
    where r.received_at < statement_timestamp() - make_interval(secs => :age::float8)
    limit :most::int
) found
