"""Explanations of why a run or a job is in its state: codes for programs and sentences for people.

Nothing is read here. Each reason has a stable code (`codes`), a sentence with its numbers, and the same numbers as
facts (`facts`). The most important comes first; the first reason that holds the run back says what would free it, and
when it will probably start. `waiting` and `blocked` explain runs that have not started; `runs` and `jobs` combine them.
"""
