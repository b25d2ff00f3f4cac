"""Triggers: pure rules that give the next scheduled moment.

`compiling` turns the JSON shape into a `Compiled`; `schedules` adds bounds, calendars and jitter; `preview` shows its
fires. Inside, a moment is a whole number of UTC seconds since 1970, and a local time is the number that a clock on the
wall would give if its reading were UTC.
"""
