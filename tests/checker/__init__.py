"""Judges what a run of Tocsin left behind, without anything that Tocsin decides with.

README.md says what is read, what must hold, and what is not judged yet.
"""
