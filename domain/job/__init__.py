"""The job: a durable intention of a tenant to have something called at certain instants.

    none -> active <-> paused
    active -> finished by its last occurrence, and active again by an edit that brings another
    any state -> cancelled; defined again by its key, it is active in its next life

`events` is a storage format and only grows at the end; `state` can be rebuilt from it; `decide`
is free to change.
"""
