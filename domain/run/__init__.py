"""The run: the aggregate that carries one occurrence of a job to its end.

    scheduled -> leased -> completed (succeeded or dead)
    leased -> scheduled again by a failed attempt with retries left
    scheduled <-> withdrawn by a pause or an edit; scheduled -> skipped | cancelled

A run ends once, and no event follows its end. The fence of a lease never falls: what an older
lease holder reports is refused.
"""
