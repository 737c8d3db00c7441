"""Which of a name's addresses an attempt connects to: checked ones only, working ones first."""

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from domain.target import AddressRules, address_allowed

# How long an address that could not be reached is tried last, and how many are remembered.
SHUNNED_US: Final = 30_000_000
SHUNNED_MAX: Final = 1024
JUDGED_MAX: Final = 4096


def is_literal(host: str) -> bool:
    """Say whether a canonical host is an address; the last label of a name has a letter first."""
    return ":" in host or host.rpartition(".")[2][:1].isdigit()


class AddressBook:
    """Judges addresses by the operator's rules, and remembers which did not answer."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._judged: OrderedDict[tuple[str, int], bool] = OrderedDict()
        self._shunned: OrderedDict[tuple[str, int], int] = OrderedDict()

    def allowed(self, address: str, port: int) -> bool:
        """Say whether an attempt may connect there; the last verdicts are kept."""
        key = (address, port)
        verdict = self._judged.get(key)
        if verdict is None:
            verdict = self._judged[key] = address_allowed(address, port, self._rules)
            if len(self._judged) > JUDGED_MAX:
                self._judged.popitem(last=False)
        return verdict

    def choose(self, addresses: Sequence[str], port: int, now_us: int) -> str | None:
        """Pick an address of a name, or none: one forbidden address condemns the whole name.

        A name that mixes public and private addresses is how a check is raced, so that no
        address of it is called.
        """
        if not all(self.allowed(address, port) for address in addresses):
            return None
        fresh = [a for a in addresses if self._shunned.get((a, port), 0) <= now_us]
        ordered = sorted(fresh or addresses, key=lambda a: ipaddress.ip_address(a).version)
        return ordered[0] if ordered else None

    def shun(self, address: str, port: int, now_us: int) -> None:
        """Try this address last for a while, because a connection to it failed."""
        self._shunned[(address, port)] = now_us + SHUNNED_US
        self._shunned.move_to_end((address, port))
        if len(self._shunned) > SHUNNED_MAX:
            self._shunned.popitem(last=False)
