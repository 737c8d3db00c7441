"""Every port in memory, for tests and simulation in virtual time.

Each adapter passes the same contract suite as the real one, faults included.
"""
