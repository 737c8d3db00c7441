"""Several processes' figures as one: a family's head once, every process's samples below it."""

from collections.abc import Iterable
from typing import Final

_HEADS: Final = ("# HELP ", "# TYPE ")


def merged(expositions: Iterable[bytes]) -> bytes:
    """Return one Prometheus text of several, whose samples differ in their labels."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for exposition in expositions:
        head, samples = families.setdefault("", ([], []))
        for line in exposition.decode("utf-8", errors="replace").splitlines():
            if line.startswith(_HEADS):
                name = line.split(" ", 3)[2]
                head, samples = families.setdefault(name, ([], []))
                if len(head) < len(_HEADS):  # every process says the same of it
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.append(line)
    lines = [line for head, samples in families.values() for line in (*head, *samples)]
    return ("\n".join(lines) + "\n").encode()
