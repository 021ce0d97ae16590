"""The durable store in one SQLite file."""

from onward.stores.sqlite.store import SqliteStore, open_store

__all__ = ["SqliteStore", "open_store"]
