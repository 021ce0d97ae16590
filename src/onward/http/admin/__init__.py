"""The admin API: keys, tenants, money, and what the server does right now."""
