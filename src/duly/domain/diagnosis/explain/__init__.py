"""Why a run or a job is where it is: from what is known of it, codes for programs and sentences for people.

Nothing is read here. Each reason has a stable code (`codes`), a sentence with its numbers, and the same numbers as facts
(`facts`). What matters most comes first; the first reason that holds something back says what would free it, and when it will
probably start. `waiting` and `blocked` tell of runs that have not started; `runs` and `jobs` put it together.
"""
