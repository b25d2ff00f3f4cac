"""Authentication: callers by API key, and browsers by session."""
