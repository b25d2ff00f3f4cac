"""Connections: the pool, transactions, sessions of tenants, and callers' own connections."""
