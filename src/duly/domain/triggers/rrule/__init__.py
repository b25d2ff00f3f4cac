"""Recurrence rules of RFC 5545."""
