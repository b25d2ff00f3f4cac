"""Schedules in English."""
