"""One module for each kind of process: the adapters that its role works with, put together."""
