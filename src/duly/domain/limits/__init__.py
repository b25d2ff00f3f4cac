"""Limits: concurrency keys, rate limits, pauses, overload and scaling."""
