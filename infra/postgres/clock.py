"""Keeps a process's estimate of the database clock true, and knows whether the database answers."""

import threading
from typing import Final

from commandside.ports import Tick, Unavailable
from infra.clock import DatabaseClock, mono_us
from infra.postgres.connection import Reconnecting

PERIOD_S: Final = 1.0
FRESH_US: Final = 5_000_000
"""Without an answer for so long, Postgres counts as away."""
CLOSE_TIMEOUT_S: Final = 2.0
_ASK: Final = "select tocsin_now(), (select zone_data from installation)"


class TimeKeeper:
    """Asks for the time in a thread of its own, so that no role waits for it."""

    def __init__(self, conninfo: str) -> None:
        """Nothing is asked before `start`."""
        self.clock = DatabaseClock()
        self.trouble = "Postgres has not answered yet"
        """Why the last question failed, for people; empty while all is well."""
        self.zone_data = ""
        """What the installation plans with, as last heard; empty before, or where none is fixed."""
        self._link = Reconnecting(conninfo, "clock")
        self._heard_us = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="clock", daemon=True)

    def start(self) -> None:
        """Ask once, waiting for the answer as long as a connection may take; then go on asking."""
        self._ask()
        self._thread.start()

    @property
    def fresh(self) -> bool:
        """Whether Postgres has answered lately."""
        return bool(self._heard_us) and mono_us() - self._heard_us < FRESH_US

    def tick(self) -> Tick:
        """Return the time to run a role with."""
        return Tick(self.clock.now(), mono_us())

    def close(self) -> None:
        """Stop asking."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)
        self._link.close()

    def _keep(self) -> None:
        while not self._closing.wait(PERIOD_S):
            self._ask()

    def _ask(self) -> None:
        try:
            with self._link.use() as connection:
                sent_us = mono_us()
                row = connection.execute(_ASK, prepare=True).fetchone()
                received_us = mono_us()
        except Unavailable as away:
            self.trouble = str(away)
            return
        assert row is not None
        self.clock.heard(row[0], sent_us, received_us)
        self.zone_data = row[1] or ""
        self._heard_us = received_us
        self.trouble = ""
