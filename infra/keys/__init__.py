"""The keys that an installation's secrets are under, in three steps.

A **master key** is outside the database: a file, a text of the environment, or a key of a key
management service that never leaves it. It wraps **wrapping keys**, of which one is in force, and
that one wraps the installation's **root secret** and the key of each **tenant**. So a master key is
asked once when a process starts, and again when it changes, never for a fire.
"""
