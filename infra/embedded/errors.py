"""The one failure that an embedded engine reports to the person who started it."""


class EngineError(Exception):
    """An engine could not do what was asked; the message is one line fit to be printed."""
