"""Everything that touches the world: adapters of ports, settings, and the composition root.

This ring may import all others and none imports it. The environment is read in `settings`, the
wall clock in `clock`, random ids are made in `ids`, and `bootstrap` puts the program together.
"""
