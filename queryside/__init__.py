"""The read side: questions about jobs, runs and attempts, answered from projections.

Nothing here writes; an answer states how far it has read when the caller asks for a version.
"""
