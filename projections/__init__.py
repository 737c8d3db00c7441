"""Views folded from events: what can be thrown away and built anew from the log.

Each view is a fold over rows of the domain's events and keeps its position in the transaction
that writes it, so that an event is applied once. A view may lag; it never decides.
"""
