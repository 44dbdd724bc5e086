"""A table as the live database has it, read from PostgreSQL's catalog in one pass of plain queries.

`read` returns what is there, or that nothing is; it changes nothing and needs no rights beyond
connecting. The queries run on PostgreSQL 15 and later. Called by `schema.check`.
"""

from typing import Any

from sqlalchemy import Row, Table, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from faststream_outbox._internal.schema.names import quoted
from faststream_outbox._internal.schema.shape import Absent, Found, FoundCheck, FoundColumn, FoundIndex, Surroundings

# The relation that a name means under the connection's search path.
_RELATION = text("""
    SELECT c.oid::bigint AS oid,
           n.nspname::text AS schema_name,
           c.relname::text AS table_name,
           c.relkind::text AS kind,
           c.relpersistence <> 'u' AS logged,
           coalesce(c.reloptions, '{}')::text[] AS options
      FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = to_regclass(CAST(:name AS text))
""")

# Whether a schema exists.
_SCHEMA = text("SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = CAST(:schema AS text))")

# Columns with their types and defaults, and the sequence that a column draws from or owns.
_COLUMNS = text("""
    SELECT a.attname::text AS name,
           format_type(a.atttypid, a.atttypmod) AS type,
           NOT a.attnotnull AS nullable,
           coalesce(pg_get_expr(d.adbin, d.adrelid), t.typdefault) AS default_expression,
           a.attidentity <> '' AS identity,
           a.attidentity = 'a' AS always,
           a.attgenerated <> '' AS generated,
           a.attgenerated = 'v' AS virtual,
           s.name AS sequence,
           coalesce(s.sound, true) AS sound,
           coalesce(s.owned, true) AS owned
      FROM pg_catalog.pg_attribute a
      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
      LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      LEFT JOIN LATERAL (
           SELECT format('%I.%I', sn.nspname, sc.relname) AS name,
                  q.seqincrement > 0 AND q.seqcache = 1 AND NOT q.seqcycle
                  AND q.seqmax = 9223372036854775807 AS sound,
                  EXISTS (SELECT
                            FROM pg_catalog.pg_depend o
                           WHERE o.classid = 'pg_class'::regclass AND o.objid = q.seqrelid
                             AND o.refclassid = 'pg_class'::regclass AND o.refobjid = a.attrelid
                             AND o.refobjsubid = a.attnum AND o.deptype IN ('a', 'i')) AS owned
             FROM pg_catalog.pg_depend p
             JOIN pg_catalog.pg_sequence q
               ON q.seqrelid = CASE p.classid WHEN 'pg_class'::regclass THEN p.objid ELSE p.refobjid END
             JOIN pg_catalog.pg_class sc ON sc.oid = q.seqrelid
             JOIN pg_catalog.pg_namespace sn ON sn.oid = sc.relnamespace
            WHERE p.refclassid = 'pg_class'::regclass
              AND (p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                   OR p.classid = 'pg_class'::regclass AND p.refobjid = a.attrelid
                      AND p.refobjsubid = a.attnum AND p.deptype IN ('a', 'i'))
            ORDER BY p.classid = 'pg_attrdef'::regclass DESC, p.deptype = 'i' DESC
            LIMIT 1
           ) s ON true
     WHERE a.attrelid = CAST(:oid AS oid) AND a.attnum > 0 AND NOT a.attisdropped
     ORDER BY a.attnum
""")

# Indexes by definition, with every column that they depend on and whether they can be used.
_INDEXES = text("""
    SELECT c.relname::text AS name,
           m.amname::text AS method,
           i.indisunique AS is_unique,
           i.indisprimary AS is_primary,
           i.indisvalid AND i.indisready AND i.indislive AS usable,
           NOT i.indimmediate AS deferrable,
           pg_get_expr(i.indpred, i.indrelid) AS predicate,
           (SELECT k.conname::text
              FROM pg_catalog.pg_constraint k
             WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
           ) AS constraint_name,
           ARRAY(
             SELECT coalesce(a.attname::text, pg_get_indexdef(i.indexrelid, n, true))
                    || CASE WHEN l.oid <> a.attcollation THEN ' COLLATE ' || l.collname ELSE '' END
                    || CASE WHEN o.opcdefault THEN '' ELSE ' ' || o.opcname END
                    || CASE WHEN i.indoption[n - 1] & 1 = 1 THEN ' DESC' ELSE '' END
                    || CASE WHEN i.indoption[n - 1] & 2 = 2 THEN ' NULLS FIRST' ELSE '' END
               FROM generate_series(1, i.indnkeyatts) AS n
               JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[n - 1]
               LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n - 1]
               LEFT JOIN pg_catalog.pg_collation l ON l.oid = i.indcollation[n - 1]
              ORDER BY n
           ) AS column_names,
           ARRAY(
             SELECT pg_get_indexdef(i.indexrelid, n, true)
               FROM generate_series(i.indnkeyatts + 1, i.indnatts) AS n
           ) AS included,
           ARRAY(
             SELECT a.attname::text
               FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = i.indrelid AND a.attnum > 0
                AND (a.attnum = ANY (i.indkey)
                     OR EXISTS (SELECT
                                  FROM pg_catalog.pg_depend p
                                 WHERE p.classid = 'pg_class'::regclass AND p.objid = i.indexrelid
                                   AND p.refclassid = 'pg_class'::regclass AND p.refobjid = i.indrelid
                                   AND p.refobjsubid = a.attnum))
           ) AS mentions,
           EXISTS (
             SELECT
               FROM pg_catalog.pg_stat_progress_create_index b
              WHERE b.datname = current_database() AND (b.relid = i.indrelid OR b.relid IS NULL)
           ) AS building
      FROM pg_catalog.pg_index i
      JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
      JOIN pg_catalog.pg_am m ON m.oid = c.relam
     WHERE i.indrelid = CAST(:oid AS oid)
     ORDER BY c.relname
""")

# The primary key and the check constraints; PostgreSQL 18 can store constraints that it does not enforce.
_CONSTRAINTS = text("""
    SELECT k.conname::text AS name,
           k.contype = 'p' AS is_primary,
           pg_get_expr(k.conbin, k.conrelid) AS predicate,
           coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true) AS enforced,
           k.convalidated AS validated,
           ARRAY(
             SELECT a.attname::text
               FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum
              ORDER BY u.place
           ) AS column_names
      FROM pg_catalog.pg_constraint k
     WHERE k.conrelid = CAST(:oid AS oid) AND k.contype IN ('p', 'c')
     ORDER BY k.conname
""")


# What stands between the rows and whoever asks: rights, policies, triggers that may drop a row, rules, children.
_SURROUNDINGS = text("""
    SELECT current_user::text AS role,
           ARRAY(
             SELECT r.name
               FROM unnest(CAST(:rights AS text[])) AS r (name)
              WHERE NOT CASE WHEN r.name = 'DELETE' THEN has_table_privilege(c.oid, r.name)
                             ELSE has_any_column_privilege(c.oid, r.name) END
           ) AS lacks,
           row_security_active(c.oid) AND NOT EXISTS (
             SELECT
               FROM pg_catalog.pg_policy p
              WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd = '*'
                AND pg_get_expr(p.polqual, p.polrelid) = 'true'
                AND coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
                AND EXISTS (SELECT
                              FROM unnest(p.polroles) AS r (oid)
                             WHERE r.oid = 0 OR pg_has_role(r.oid, 'usage'))
                AND NOT EXISTS (SELECT
                                  FROM pg_catalog.pg_policy n
                                 WHERE n.polrelid = c.oid AND NOT n.polpermissive)
           ) AS hides_rows,
           ARRAY(
             SELECT t.tgname::text
               FROM pg_catalog.pg_trigger t
               JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
              WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
                AND t.tgtype & 3 = 3 AND f.prosrc ~* '\\mreturn\\s+null\\M'
              ORDER BY t.tgname
           ) AS dropping_triggers,
           ARRAY(
             SELECT w.rulename::text
               FROM pg_catalog.pg_rewrite w
              WHERE w.ev_class = c.oid AND w.rulename <> '_RETURN' AND w.is_instead AND w.ev_enabled <> 'D'
              ORDER BY w.rulename
           ) AS rules,
           ARRAY(
             SELECT CAST(CAST(h.inhrelid AS regclass) AS text)
               FROM pg_catalog.pg_inherits h
              WHERE h.inhparent = c.oid AND c.relkind = 'r'
              ORDER BY 1
           ) AS children
      FROM pg_catalog.pg_class c
     WHERE c.oid = CAST(:oid AS oid)
""")


_SECURED = text("""
    SELECT n.place FROM unnest(CAST(:names AS text[])) WITH ORDINALITY AS n (name, place)
     WHERE row_security_active(to_regclass(n.name))
""")


async def hidden(connection: AsyncConnection, *tables: Table | None) -> list[str]:
    """Names of those of these tables of which policies hide rows from whoever asks; one question where none does."""
    given = [table for table in tables if table is not None]
    names = [quoted(table.name, table.schema) for table in given]
    secured = (await connection.execute(_SECURED, {"names": names})).scalars().all()
    suspects = [given[place - 1] for place in secured]
    found = [(table.name, await read(connection, table.name, table.schema)) for table in suspects]
    return [name for name, one in found if isinstance(one, Found) and one.surroundings.hides_rows]


async def read(
    connection: AsyncConnection, table: str, schema: str | None, rights: tuple[str, ...] = ()
) -> Found | Absent:
    """What the database has under this name, and which rights on it are missing; the search path may decide."""
    relation = (await connection.execute(_RELATION, {"name": quoted(table, schema)})).one_or_none()
    if relation is None:
        exists = schema is None or bool(await connection.scalar(_SCHEMA, {"schema": schema}))
        return Absent(schema_exists=exists)
    columns = await _rows(connection, _COLUMNS, relation.oid)
    indexes = await _rows(connection, _INDEXES, relation.oid)
    constraints = await _rows(connection, _CONSTRAINTS, relation.oid)
    around = (await connection.execute(_SURROUNDINGS, {"oid": relation.oid, "rights": [*rights]})).one()
    primary = next((row for row in constraints if row.is_primary), None)
    checks = [row for row in constraints if not row.is_primary]
    return Found(
        table=relation.table_name,
        schema=relation.schema_name,
        columns=tuple(_column(row) for row in columns),
        primary_key=() if primary is None else tuple(primary.column_names),
        primary_key_name=None if primary is None else primary.name,
        indexes=tuple(_index(row) for row in indexes),
        checks=tuple(FoundCheck(row.name, row.predicate, row.enforced, row.validated) for row in checks),
        options=dict(option.split("=", 1) for option in relation.options),
        kind=relation.kind,
        logged=relation.logged,
        surroundings=Surroundings(
            role=around.role,
            lacks=tuple(around.lacks),
            hides_rows=around.hides_rows,
            dropping_triggers=tuple(around.dropping_triggers),
            rules=tuple(around.rules),
            children=tuple(around.children),
        ),
    )


async def _rows(connection: AsyncConnection, query: TextClause, oid: int) -> list[Row[Any]]:
    return list(await connection.execute(query, {"oid": oid}))


def _column(row: Row[Any]) -> FoundColumn:
    return FoundColumn(
        name=row.name,
        type=row.type,
        nullable=row.nullable,
        default=row.default_expression,
        identity=row.identity,
        generated=row.generated,
        virtual=row.virtual,
        sequence=row.sequence,
        sound=row.sound,
        always=row.always,
        owned=row.owned,
    )


def _index(row: Row[Any]) -> FoundIndex:
    return FoundIndex(
        name=row.name,
        columns=tuple(row.column_names),
        unique=row.is_unique,
        predicate=row.predicate,
        method=row.method,
        included=tuple(row.included),
        mentions=frozenset(row.mentions),
        constraint=row.constraint_name,
        primary=row.is_primary,
        usable=row.usable,
        building=row.building,
        deferrable=row.deferrable,
    )
