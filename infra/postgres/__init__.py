"""Postgres: the event log and all that commits with it.

A decision commits whole or not at all, under the lock order of the protocol. Postgres alone is
enough to recover everything else.
"""
