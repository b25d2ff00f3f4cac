"""The embedded PostgreSQL: private, durable, and careful with what it finds."""

import asyncpg


async def test_a_server_gives_databases_to_a_role_without_special_rights(postgres):
    connection = await asyncpg.connect(postgres.url(postgres.create()))

    rights = await connection.fetchrow("select rolsuper, rolcreaterole, rolbypassrls from pg_roles where rolname = user")
    await connection.close()

    assert tuple(rights) == (False, False, False)
