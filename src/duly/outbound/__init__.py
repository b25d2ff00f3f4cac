"""Outbound calls: every call to an address that a tenant named, with its guard, signature and transport."""
