"""Which of a name's addresses an attempt connects to: checked ones only, working ones first."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from domain.target import AddressRules, address_allowed, is_open_host

# How long an address that could not be reached is tried last, and how many are remembered.
SHUNNED_US: Final = 30_000_000
SHUNNED_MAX: Final = 1024
RACED_MAX: Final = 4
"""Addresses of a name that one attempt tries."""
JUDGED_MAX: Final = 4096


def is_literal(host: str) -> bool:
    """Say whether a canonical host is an address; the last label of a name has a letter first."""
    return ":" in host or host.rpartition(".")[2][:1].isdigit()


class AddressBook:
    """Judges addresses by the operator's rules, and remembers which did not answer."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._judged: OrderedDict[tuple[str, int, bool], bool] = OrderedDict()
        self._shunned: OrderedDict[tuple[str, int], int] = OrderedDict()

    def allowed(self, address: str, port: int, host: str = "") -> bool:
        """Say whether an attempt may connect there by this name; the last verdicts are kept."""
        rules = self._rules
        open_host = bool(rules.hosts) and is_open_host(host, rules)
        key = (address, port, open_host)
        verdict = self._judged.get(key)
        if verdict is None:
            verdict = address_allowed(address, port, rules, open_host=open_host)
            self._judged[key] = verdict
            if len(self._judged) > JUDGED_MAX:
                self._judged.popitem(last=False)
        return verdict

    def choose(
        self, host: str, addresses: Sequence[str], port: int, now_us: int
    ) -> tuple[str, ...]:
        """Pick addresses of a host to race, the likeliest first; none if one is forbidden.

        A name that mixes public and private addresses is how a check is raced, so that no
        address of it is called. Both families are among those that are picked, if there are both.
        """
        if not all(self.allowed(address, port, host) for address in addresses):
            return ()
        if len(addresses) == 1:
            return (addresses[0],)
        fresh = [a for a in addresses if self._shunned.get((a, port), 0) <= now_us]
        ranks: dict[int, int] = {4: 0, 6: 0}
        ranked: list[tuple[int, int, str]] = []
        for address in fresh or addresses:
            version = 6 if ":" in address else 4
            ranked.append((ranks[version], version, address))
            ranks[version] += 1
        return tuple(address for _, _, address in sorted(ranked)[:RACED_MAX])

    def shun(self, address: str, port: int, now_us: int) -> None:
        """Try this address last for a while, because a connection to it failed."""
        self._shunned[(address, port)] = now_us + SHUNNED_US
        self._shunned.move_to_end((address, port))
        if len(self._shunned) > SHUNNED_MAX:
            self._shunned.popitem(last=False)
