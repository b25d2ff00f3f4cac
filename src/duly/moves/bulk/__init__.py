"""Moves of many jobs, runs or dead letters at once."""
