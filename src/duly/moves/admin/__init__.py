"""Moves of an operator: tenants, keys, destinations, pauses, limits, secrets and the audit."""
