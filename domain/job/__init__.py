"""The job: a durable intention of a tenant to have something called at certain instants.

    defined -> active <-> paused -> ended
    any state but ended -> ended by delete, by its last occurrence or by its end instant

`events` is a storage format and only grows at the end; `state` can be rebuilt from it; `decide`
is free to change.
"""
