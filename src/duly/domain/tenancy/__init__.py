"""Tenancy: API keys, audit entries and sealed secrets."""
