"""Bringing the schema up to date, when a gateway starts."""

from pathlib import Path
from typing import Final

import asyncpg

from onward.stores.error import StoreError
from onward.stores.postgres.database import Connection
from onward.stores.statements import Migration, read_migrations

MIGRATIONS: Final = read_migrations(Path(__file__).parent / "migrations")
_LOCK: Final = 0x4F4E574152440001
"""Of the gateways that start at once one changes the schema, and the others wait for it."""
_WAIT_S: Final = 60

_SCHEMA_EXISTS: Final = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)"
_TABLE_EXISTS: Final = (
    "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations')"
)


async def migrate(connection: Connection, schema: str, migrations: list[Migration] = MIGRATIONS) -> None:
    """Take the steps that the schema has not seen, all or none. StoreError where that cannot be."""
    if await _version(connection, schema, migrations) == len(migrations):
        return
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL statement_timeout = '{_WAIT_S}s'")
            await connection.execute("SET LOCAL synchronous_commit = on")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            version = await _version(connection, schema, migrations)
            if version is None:
                if not await connection.fetchval(_SCHEMA_EXISTS, schema):
                    await connection.execute(f"CREATE SCHEMA {schema}")
                await connection.execute(
                    "CREATE TABLE migrations (number integer PRIMARY KEY, name text NOT NULL,"
                    " at timestamptz NOT NULL DEFAULT now())"
                )
            for step in migrations[version or 0 :]:
                await connection.execute(step.sql)
                await connection.execute(
                    "INSERT INTO migrations (number, name) VALUES ($1, $2)", step.number, step.name
                )
    except (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError) as error:
        raise StoreError(
            f"The user of PostgreSQL may not make the schema {schema}: {error}. Grant it CREATE on the"
            " database, or make the schema and give it to the user."
        ) from error


async def _version(connection: Connection, schema: str, migrations: list[Migration]) -> int | None:
    """How many steps the schema has seen; None: it is not ours yet."""
    if not await connection.fetchval(_TABLE_EXISTS, schema):
        return None
    version: int = await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations")
    if version > len(migrations):
        raise StoreError(
            f"The schema {schema} was written by a newer version of Onward: it is at {version}, this"
            f" version knows {len(migrations)}. Use the newer one."
        )
    return version
