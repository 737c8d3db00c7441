"""What the ports of every ring have in common."""


class Unavailable(Exception):
    """The engine behind a port cannot be reached; what was asked may be tried again later."""
