"""Faults on the real processes: every role by itself, real engines, and a checker at the end.

`python -m tests.chaos` plays scenarios; README.md says what one is made of.
"""
