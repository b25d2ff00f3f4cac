"""The schema in words, as the server's catalogue tells it: what a migration changes shows as a change of `schema.txt`.

Run as `python -m tests.store.schema` to write it anew, and with it the edition of the functions, which goes up with their text.
"""

import asyncio
import hashlib
import tempfile
from pathlib import Path

from duly.store.connection.database import Database
from duly.store.schema import in_force
from duly.store.schema.migrate import migrate
from duly.store.schema.state import known
from tests.postgres import scratch_server

EDITION = Path(in_force.__file__).with_name("functions") / "edition.txt"
OURS = "relnamespace = 'duly'::regnamespace"
SECTIONS = {
    "types": """
        select format('%s: %s', t.typname, string_agg(e.enumlabel, ', ' order by e.enumsortorder))
          from pg_type t join pg_enum e on e.enumtypid = t.oid where t.typnamespace = 'duly'::regnamespace group by t.typname""",
    "sequences": f"""
        select format('%s: start %s, increment %s, cache %s', c.relname, seqstart, seqincrement, seqcache)
          from pg_sequence join pg_class c on c.oid = seqrelid where {OURS}""",
    "tables": f"""
        select format('%s%s%s', c.relname, ' partition by ' || pg_get_partkeydef(c.oid),
                      ' of ' || i.inhparent::regclass::name || ' ' || pg_get_expr(c.relpartbound, c.oid))
               || coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '')
          from pg_class c left join pg_inherits i on i.inhrelid = c.oid where {OURS} and c.relkind in ('r', 'p')""",
    "columns": f"""
        select format('%s.%s %s %s%s%s', c.relname, lpad(a.attnum::text, 2, '0'), a.attname, format_type(a.atttypid, a.atttypmod),
                      case when a.attnotnull then ' not null' else '' end, ' default ' || pg_get_expr(d.adbin, d.adrelid))
               || case when co.collname = 'C' then ' collate "C"' else '' end
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum left join pg_collation co on co.oid = a.attcollation
         where {OURS} and c.relkind in ('r', 'p', 'v') and not c.relispartition""",
    "constraints": f"""
        select format('%s: %s', c.relname, pg_get_constraintdef(k.oid)) from pg_constraint k join pg_class c on c.oid = k.conrelid
         where {OURS} and not c.relispartition and k.contype <> 'n'""",
    "indexes": f"""
        select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indrelid
         where {OURS} and not c.relispartition""",
    "views": f"""
        select format(E'%s:\\n%s', c.relname, pg_get_viewdef(c.oid)) from pg_class c where {OURS} and c.relkind = 'v'""",
    "functions": """
        select format('%s(%s) returns %s, %s%s%s',
                      p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid),
                      case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
                      case when p.prosecdef then ' security definer' else '' end,
                      coalesce(' set ' || array_to_string(p.proconfig, ' '), ''))
          from pg_proc p where p.pronamespace = 'duly'::regnamespace""",
    "triggers": f"""
        select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where {OURS} and not t.tgisinternal and not c.relispartition""",
    "policies": f"""
        select format('%s on %s to %s using %s', y.polname, c.relname, y.polroles::regrole[], pg_get_expr(y.polqual, y.polrelid))
          from pg_policy y join pg_class c on c.oid = y.polrelid where {OURS}""",
    "walls": f"""
        select c.relname from pg_class c where {OURS} and c.relrowsecurity""",
    "rights of others": f"""
        select format('%s %s to %s', g.privilege_type, coalesce(c.relname || '.' || a.attname, c.relname), g.grantee::regrole)
          from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attacl is not null and not c.relispartition
         cross join lateral aclexplode(coalesce(a.attacl, c.relacl)) as g
         where {OURS} and g.grantee <> c.relowner and g.grantee <> 0
        union all
        select format('execute %s to %s', p.proname, g.grantee::regrole)
          from pg_proc p cross join lateral aclexplode(p.proacl) as g
         where p.pronamespace = 'duly'::regnamespace and g.grantee <> p.proowner and g.grantee <> 0""",
}


def texts() -> dict[str, str]:
    """Read all that makes a schema: the migrations and the files of functions, by their names."""
    migrations = {f"{migration.version:04d}_{migration.name}.sql": migration.sql for migration in known()}
    return migrations | {file.name: file.sql for file in in_force.known()}


async def describe(database: Database) -> str:
    """Tell the schema, sorted, each kind of thing under its name."""
    parts = []
    for kind, query in SECTIONS.items():
        lines = sorted(row[0] for row in await database.fetch(query))
        parts.append("\n".join([f"# {kind}", *lines]))
    return "\n\n".join(parts) + "\n"


def digest_of_functions() -> str:
    """Sum up the texts of all files of functions."""
    lines = [f"{file.name} {file.digest}\n" for file in in_force.known()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def raise_edition() -> None:
    """Give the functions the next number, if a text has changed since the last."""
    number, digest = EDITION.read_text().split()
    if digest != digest_of_functions():
        EDITION.write_text(f"{int(number) + 1} {digest_of_functions()}\n")


async def write() -> None:
    """Write the schema that the migrations make."""
    raise_edition()
    with tempfile.TemporaryDirectory() as folder, scratch_server(Path(folder)) as server:
        async with Database(server.url()) as database:
            await migrate(database)
            Path(__file__).with_name("schema.txt").write_text(await describe(database))


if __name__ == "__main__":
    asyncio.run(write())
