"""Attacks from outside: each was possible once."""
