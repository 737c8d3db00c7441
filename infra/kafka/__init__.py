"""Kafka: the ready queue between scheduler and dispatcher.

A hint and never the truth: a lost, repeated or reordered message costs time, not correctness.
"""
