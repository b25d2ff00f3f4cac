"""Schedules: a trigger with its bounds, calendars, jitter and policies, and what staging needs of it."""
