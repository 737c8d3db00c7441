"""Tests, by what they stand on: pure functions, ports, engines, the whole program."""
