"""When a job is due: schedules as values, and the walk from one slot to the next.

A schedule is stored as a small frozen value (`ScheduleSpec`) and compiled into a `Plan`, which
answers two questions only: the first slot after an instant, and the newest slot up to one.
Everything else (misfire, overlap, catch-up) is decided elsewhere with those two answers.

Invariants: a slot is a whole second of absolute time; `next_after(t) > t` always; the answers
depend on the value, the pinned zone data and the arguments, never on the machine or the clock.
"""
