"""Cells: the directory of several primaries, and the move of a tenant from one to another."""
