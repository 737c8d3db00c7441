"""Targets: the calls that a fire makes, and the addresses that it may never reach."""
