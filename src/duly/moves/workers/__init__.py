"""Moves of workers over HTTP and of receivers that settle a run later."""
