"""Moves of HTTP workers, and of receivers that settle a run later."""
