"""Schedules: a trigger with its bounds, calendars, jitter and policies, and the plans that staging needs."""
