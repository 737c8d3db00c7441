"""The engines of a one-machine Tocsin, as processes of our own: Postgres, broker, run history.

Each is started and stopped by an object with `start() / stop() / kill() / pid / address`, keeps
its files in one data folder, is ready when it answers its real protocol, and can be replaced by a
server elsewhere by setting one address: nothing outside this package knows the difference.
"""
