"""Moves of schedules: edit, pause, skip, backfill, recover, apply, declare."""
