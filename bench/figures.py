"""The arithmetic of a run: what came, how late, how often, and what did not come."""

from collections.abc import Sequence
from typing import Any, Final

EARLY_TOLERATED_MS: Final = 5.0
"""More than this before the due instant is early; less is the clocks' grain."""

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` of the ordered values lie; none of nothing."""
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """Return the quantiles that a run is judged by."""
    ordered = sorted(values)
    return {name: quantile(ordered, share) for name, share in QUANTILES.items()}


def report(
    ids: Sequence[bytes], due_ms: Sequence[int], at_ms: Sequence[float], expected: int | None = None
) -> dict[str, Any]:
    """Return the figures of all arrivals; a due instant of 0 is none, and has no lateness.

    Lateness, early ones and the drain are of the first arrival of each id: what comes twice is a
    duplicate, not late. Without `expected` nothing can be called lost.
    """
    first: dict[bytes, tuple[float, int]] = {}
    for identity, due, at in zip(ids, due_ms, at_ms, strict=True):
        known = first.get(identity)
        if known is None or at < known[0]:
            first[identity] = (at, due)
    late = [at - due for at, due in first.values() if due]
    dues = [due for _, due in first.values() if due]
    ends = max((at for at, _ in first.values()), default=0.0)
    begins = min((at for at, _ in first.values()), default=0.0)
    return {
        "count": len(ids),
        "distinct": len(first),
        "duplicates": len(ids) - len(first),
        "lost": None if expected is None else expected - len(first),
        "early": sum(value < -EARLY_TOLERATED_MS for value in late),
        "early_ms_max": round(max((-value for value in late), default=0.0), 3),
        "lateness_ms": quantiles(late),
        "first_ms": begins,
        "last_ms": ends,
        "drain_s": round((ends - min(dues)) / 1000, 4) if dues else None,
        "fires_per_s": rate(len(first), (ends - (min(dues) if dues else begins)) / 1000),
    }


def rate(count: int, seconds: float) -> float | None:
    """Return how many a second; none of no time."""
    return round(count / seconds, 1) if seconds > 0 else None


def per_fire(cpu_s: dict[str, float], fires: int) -> dict[str, float]:
    """Return microseconds of CPU for each fire, by process."""
    return {name: round(seconds / max(fires, 1) * 1e6, 1) for name, seconds in cpu_s.items()}
