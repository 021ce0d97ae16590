"""Where keys, money and limits are kept: SQLite, PostgreSQL, memory, Redis, behind admission's ports."""
