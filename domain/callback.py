"""Who is told how an occurrence ends: per job, and by default per tenant.

Telling is itself a one-time job, on the same path as any other; `domain.job.callback` says which.
The structs are stored inside events: fields are appended at the end only, with defaults.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from domain.target import Target

SUCCESS, FAILURE, SKIPPED = 0, 1, 2
NAMES: Final = ("on_success", "on_failure", "on_skipped")
"""What a definition calls them, by number."""


class Callbacks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where to tell of each kind of end; header values are ciphertext inside events.

    None leaves it to the tenant's default, unless its number is in `off`: then nobody is told.
    """

    on_success: Target | None = None
    on_failure: Target | None = None
    on_skipped: Target | None = None
    off: tuple[int, ...] = ()

    @property
    def targets(self) -> tuple[Target | None, Target | None, Target | None]:
        """The targets, by number."""
        return self.on_success, self.on_failure, self.on_skipped

    @property
    def has_target(self) -> bool:
        """Whether anybody is told by these."""
        return any(target is not None for target in self.targets)


def callbacks_of(targets: Sequence[Target | None], off: tuple[int, ...] = ()) -> Callbacks:
    """Return callbacks of targets by number."""
    success, failure, skipped = targets
    return Callbacks(success, failure, skipped, off)


class CallbackOf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a callback job tells of: the event at `version` of a stream, and whose it is.

    `run_id` is empty for slots that never had a run: the event is one of their job's, or of its
    next run. `default` is the version of the tenant's default that named the target, 0 where the
    job did.
    """

    job_id: bytes
    run_id: bytes
    stream_id: bytes
    version: int
    event: int
    default: int = 0


def chosen(
    event: int, own: Callbacks | None, default: Callbacks | None
) -> tuple[Target, bool] | None:
    """Return who is told of an end, and whether it is the default; None for nobody."""
    if own is not None:
        target = own.targets[event]
        if target is not None:
            return target, False
        if event in own.off:
            return None
    target = None if default is None else default.targets[event]
    return None if target is None else (target, True)
