"""What a definition, or a tenant's default, says of who is told how occurrences end.

A callback is a target like any other, judged by the same reader: the same addresses, ports, headers
and queues are open to it.
"""

from collections.abc import Mapping
from typing import Any, Final

from commandside.definitions import destination
from commandside.definitions.destination import Bounds, Reading
from domain.callback import NAMES, Callbacks, callbacks_of
from domain.job.events import JobSpec
from domain.problem import Reason, invalid
from domain.queue_target import Grants, judge
from domain.refusal import Refused
from domain.target import HttpTarget, Target

FIELDS: Final = NAMES
OFF: Final = False
"""What a job says where nobody is to be told, whatever the tenant's default is."""
_TARGET: Final = "/target"
_NO_TARGET: Final = (
    'an object such as {"kind": "http", "url": "https://…"}; false in a job tells nobody'
)


class _Part:
    """A body of its own: a tenant's default, or one member of a body read as its `target`."""

    old: JobSpec | None = None

    def __init__(
        self, body: Mapping[str, Any], bounds: Bounds, before: Target | None = None
    ) -> None:
        self.body = body
        self.values: dict[str, Any] = {}
        self.wrong: list[Reason] = []
        self.bounds = bounds
        self.target_before = before

    def refuse(self, pointer: str, detail: str) -> None:
        self.wrong.append(Refused(pointer, detail))


def read(reader: Reading) -> None:
    """Read the callbacks of a job."""
    given = [name for name in NAMES if name in reader.body]
    if given and reader.old is not None and reader.old.callback_of is not None:
        for name in given:
            reader.refuse(f"/{name}", "the job is a callback itself: nobody is told of its end")
    before = None if reader.old is None else reader.old.callbacks
    off = tuple(number for number, name in enumerate(NAMES) if reader.body.get(name) is OFF)
    reader.values["callbacks"] = callbacks_of(_targets(reader, before), off) if given else None


def read_default(
    body: Mapping[str, Any], bounds: Bounds, before: Callbacks | None
) -> tuple[Callbacks, list[Reason]]:
    """Read a tenant's default, which has at least one target; return it and what is wrong."""
    reader = _Part(body, bounds)
    given = [name for name in NAMES if name in body]
    if not given:
        reader.refuse("", f"at least one of {', '.join(NAMES)}")
    for name in given:
        if body[name] is OFF:
            reader.refuse(f"/{name}", "false is for jobs: leave it out, or DELETE the default")
    return callbacks_of(_targets(reader, before)), reader.wrong


def _targets(reader: Reading, before: Callbacks | None) -> list[Target | None]:
    given = reader.body
    return [
        _target(reader, name, before) if name in given and given[name] is not OFF else None
        for name in NAMES
    ]


def _target(reader: Reading, name: str, before: Callbacks | None) -> Target | None:
    was: Target | None = None if before is None else getattr(before, name)
    part = _Part({"target": reader.body[name]}, reader.bounds, was)
    if isinstance(reader.body[name], Mapping):
        destination.read(part, "a callback is sent as application/json")
    else:
        part.refuse(_TARGET, _NO_TARGET)
    reader.wrong.extend(_moved(part.wrong, name))
    found: Target | None = part.values.get("target")
    return found


def judge_sending(callbacks: Callbacks, tenant_id: bytes, grants: Grants) -> None:
    """Raise Problem where a callback has no body, or is a queue closed to this tenant."""
    wrong: list[Reason] = []
    for name, target in zip(NAMES, callbacks.targets, strict=True):
        if isinstance(target, HttpTarget) and target.method == "HEAD":
            wrong.append(Refused(f"/{name}/method", "a HEAD call has no body to tell with"))
        closed = None if target is None else judge(target, tenant_id, grants)
        if closed is not None:
            wrong.extend(_moved((closed,), name))
    if wrong:
        raise invalid(wrong)


def _moved(wrong: Any, name: str) -> list[Reason]:
    """Return refusals of a `target` as those of the member that it is."""
    return [Refused(f"/{name}{one.pointer.removeprefix(_TARGET)}", one.detail) for one in wrong]
