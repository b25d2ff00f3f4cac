"""Attacks on Duly, gathered by what they attack; docs/security.md tells what each file asserts."""
