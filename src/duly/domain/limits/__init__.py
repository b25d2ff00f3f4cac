"""Limits: concurrency keys, rates, pauses, overload and scaling."""
