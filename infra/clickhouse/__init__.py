"""ClickHouse: the run history, for questions over many runs.

Rows arrive at least once and are merged to one; the position is written after its rows.
"""
