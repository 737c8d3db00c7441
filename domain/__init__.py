"""What Tocsin decides, and nothing of how it is carried out.

Pure: time, ids and fences are arguments; nothing here reads a clock, draws a random number or
does I/O. Deciders take a state and a command and return events or a refusal, so that every
promise can be tested without an engine.
"""
