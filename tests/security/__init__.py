"""Attacks on Duly, gathered by what they attack; docs/explanation/security.md tells what each file asserts."""
