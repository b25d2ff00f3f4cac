"""The embedded PostgreSQL and its supervisor."""
