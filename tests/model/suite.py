"""python -m tests.model.suite [hold|break|NAME ...]: the whole suite, a half, or some worlds."""

import sys
import time

from tests.model.broken_worlds import BREAK
from tests.model.search import Found, explore
from tests.model.state import Cfg
from tests.model.worlds import HOLD


def expected(found: Found, law: str) -> bool:
    """Tell whether the search ended as the world says: all laws hold, or this one breaks."""
    return found.why.startswith(law) if law else found.ok is True


def _search(c: Cfg, law: str, *, story: bool) -> bool:
    began = time.monotonic()
    found = explore(c)
    took = time.monotonic() - began
    good = expected(found, law)
    answer = ("caught" if law else "holds") if good else "NOT AS EXPECTED"
    print(
        f"{c.name:26}{c.mut or '-':24}{found.states:9} states{found.edges:10} steps{took:7.1f}s "
        f"{answer} {found.why}",
        flush=True,
    )
    if story or not good:
        print("\n".join(f"        {line}" for line in found.story))
    return good


def main(argv: list[str]) -> int:
    """Search and print a line for each world; 1 if one is not as expected."""
    want = set(argv or ("hold", "break"))
    worlds = [(c, "") for c in HOLD if want & {"hold", c.name}]
    worlds += [(c, law) for c, law in BREAK if want & {"break", c.mut}]
    bad = [c for c, law in worlds if not _search(c, law, story=c.mut in want)]
    print(f"{len(worlds)} worlds, {len(bad)} not as expected")
    return bool(bad or not worlds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
