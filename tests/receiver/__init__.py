"""Tests of the receiver kit, `clients/receiver`."""
