"""Engines that tests start: real, on loopback, with data that outlives a kill."""
