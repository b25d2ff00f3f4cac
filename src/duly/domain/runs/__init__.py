"""Runs: outcome, lifecycle, retry, expiry, dependencies and completion callbacks."""
