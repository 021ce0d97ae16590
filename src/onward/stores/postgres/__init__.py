"""The durable store in PostgreSQL."""

from onward.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
