"""A definition as JSON, read into the spec of a job, with every refusal named by its pointer.

The body is read in sections. A definition reads all of them; a change (PATCH) reads those that it
touches, over what the job says now, and leaves the others as they are: a rule that became stricter
since then never stands in the way of an edit elsewhere.

Values come out plain; sealing them is the business of whoever knows the job's id.
"""

import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from commandside.definitions import callback_body, destination, policies
from commandside.definitions.calendar_body import EXCLUDE_MAX, NAME, NAME_SAYS
from commandside.definitions.given import with_values
from commandside.definitions.patch import PAYLOADS, lifted, over, removes_payload
from commandside.definitions.placement import TO_CHOOSE
from commandside.definitions.when import RECURRING, SPAN, counts_ends, read_span, read_when
from domain import wording
from domain.idempotency import DEFAULT_TEMPLATE, Template, parse_template
from domain.job import events as e
from domain.problem import Reason, invalid
from domain.queue_target import Grants
from domain.refusal import Refused
from domain.retry import ONE_TIME_DEFAULT, RECURRING_DEFAULT, RetryPolicy, parse_retry
from domain.strict_json import shown
from domain.target import AddressRules, Target

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_MS: Final = 30_000
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = 900_000
JITTER_MS: Final = 5_000
JITTER_MS_MAX: Final = 3_600_000
PLACEMENTS: Final = ("spread", "emptiest")
NAME_MAX: Final = 128
KEY_MAX: Final = 255
LABELS_MAX: Final = 20

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_MEDIA_TYPE: Final = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}(?:;[\x20-\x7e]{1,64})?"
)
_USUAL_TYPES: Final = frozenset(PAYLOADS.values())
_WORDS: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")

_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "when": ("type", "run_at", *RECURRING),
    "span": ("type", *SPAN),
    "exclude": ("type", "exclude"),
    "target": ("target",),
    "payload": (*PAYLOADS, "content_type"),
    "retry": ("retry",),
    "timeout": ("timeout_s",),
    "completion": ("heartbeat_timeout_s", "max_run_time_s"),
    "template": ("idempotency_key_template",),
    "overlap": ("overlap", "allow_overlap", "overlap_limit", "from"),
    "misfire": ("misfire", "catch_up_window_s", "from"),
    "lateness": ("max_lateness_s",),
    "failures": ("pause_after_failures",),
    "jitter": ("jitter_s", "exact", "placement", "from"),
    "callbacks": callback_body.FIELDS,
    "name": ("name",),
    "labels": ("labels",),
}
FIELDS: Final = frozenset(("key", *(field for fields in _SECTIONS.values() for field in fields)))
_PASSING: Final = ("when", "span", "payload", "name")
_POLICIES: Final = tuple(name for name in _SECTIONS if name not in (*_PASSING, "target"))
_POLICY_FIELDS: Final = frozenset(
    ("type", *(field for name in _POLICIES for field in _SECTIONS[name]))
)
_OUTLINE: Final = ("when", "span", "exclude", "jitter")
"""What says when a job fires."""
_OTHER_VALUES: Final = frozenset(
    {"schedule", "starts_at", "ends_at", "max_runs", "payload", "content_type", "name", "target"}
)
"""What is read of sections that are no policies."""
_UNREAD: Final = {
    (target_known, policy_known): tuple(
        name
        for name in _SECTIONS
        if name in _PASSING
        or (name == "target" and not target_known)
        or (name in _POLICIES and not policy_known)
    )
    for target_known in (False, True)
    for policy_known in (False, True)
}
"""Sections to read, by what is known; always in one order, which is the order of refusals."""
KNOWN_MAX: Final = 4_096
KNOWN_LENGTH_MAX: Final = 4_096
"""Remembered targets, and policies, and characters of one; together at most some 40 MB."""
NOT_YET: Final = frozenset(
    {
        "catch_up",
    }
)
_LATER: Final = "not supported yet"
_UNKNOWN: Final = "unknown field; /openapi.json lists those that there are"
_NO_PAYLOAD: Final = "there is no payload that it could be the type of"


class Bounds(msgspec.Struct, frozen=True):
    """What the operator decided about definitions."""

    addresses: AddressRules = AddressRules()
    min_interval_s: int = 60
    grants: Grants = {}


class Asked(msgspec.Struct, frozen=True):
    """What a body asks for: fields of a JobSpec with plain values, and the client's `key`."""

    values: dict[str, Any]
    key: str = ""


class _Known:
    """Values that were read, by the text that they were read from; the oldest go first."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.get = self._values.get

    def put(self, text: str, values: dict[str, Any]) -> dict[str, Any]:
        if len(text) <= KNOWN_LENGTH_MAX:
            self._values[text] = values
            if len(self._values) > KNOWN_MAX:
                self._values.popitem(last=False)
        return values


class Definitions:
    """Reads definitions under an operator's bounds.

    Targets and policies do not depend on the instant, and are remembered by their JSON: thousands
    of jobs that differ in name, schedule and payload ask for the same.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._targets = _Known()
        self._policies = _Known()

    def define(
        self, body: Mapping[str, Any], payload: bytes | None, at: int, tenant_id: bytes
    ) -> Asked:
        """Read a whole definition at `at`; raises Problem. `payload`: that member as sent."""
        reader = _Reader(lifted(body), payload, at, self.bounds, None)
        reader.refuse_strangers()
        key = reader.key()
        body = reader.body
        # The text of JSON values tells apart what compares equal: 1, 1.0 and true.
        targets = repr(body.get("target"))
        policies = repr([item for item in body.items() if item[0] in _POLICY_FIELDS])
        target, policy = self._targets.get(targets), self._policies.get(policies)
        values = reader.read(_UNREAD[target is not None, policy is not None])
        if target is None:
            target = self._targets.put(targets, {"target": values["target"]})
        if policy is None:
            other = {name: value for name, value in values.items() if name not in _OTHER_VALUES}
            policy = self._policies.put(policies, other)
        found = {**policy, **target, **values}
        destination.judge_sending(
            found["target"], len(found["payload"]), tenant_id, self.bounds.grants
        )
        if found["callbacks"] is not None:
            callback_body.judge_sending(found["callbacks"], tenant_id, self.bounds.grants)
        return Asked(found, key)

    def outline(self, body: Mapping[str, Any], payload: bytes | None, at: int) -> Asked:
        """Read what there is of a definition, and its schedule in any case; raises Problem."""
        reader = _Reader(lifted(body), payload, at, self.bounds, None)
        reader.refuse_strangers()
        key = reader.key()
        given = [
            name
            for name, fields in _SECTIONS.items()
            if name in _OUTLINE or any(field in reader.body for field in fields)
        ]
        return Asked(reader.read(tuple(given)), key)

    def change(
        self,
        patch: Mapping[str, Any],
        payload: bytes | None,
        old: e.JobSpec,
        at: int,
        tenant_id: bytes,
    ) -> Asked:
        """Read a merge patch (RFC 7396) over what a job says now; raises Problem.

        Only what is touched is in the answer. A header whose value is `KEPT` stays as it is.
        """
        body = lifted(patch)
        touched = tuple(
            name for name, fields in _SECTIONS.items() if any(field in body for field in fields)
        )
        reader = _Reader(over(wording.spec(old), body), payload, at, self.bounds, old)
        reader.removed = removes_payload(body)
        reader.refuse_strangers()
        if "key" in body:
            reader.refuse("/key", "the name of a job cannot be changed")
        found = reader.read(touched)
        target = found.get("target", old.target)
        if not found.keys().isdisjoint(("target", "payload")):
            size = len(found["payload"]) if "payload" in found else destination.opened(old)
            destination.judge_sending(target, size, tenant_id, self.bounds.grants)
        if found.get("callbacks") is not None:
            callback_body.judge_sending(found["callbacks"], tenant_id, self.bounds.grants)
        return Asked(found)


class _Reader:
    """Reads one body, collecting every refusal."""

    def __init__(
        self,
        body: Mapping[str, Any],
        payload: bytes | None,
        at: int,
        bounds: Bounds,
        old: e.JobSpec | None,
    ) -> None:
        self.body = body
        self.payload_sent = payload
        self.at = at
        self.bounds = bounds
        self.old = old
        self.wrong: list[Reason] = []
        self.values: dict[str, Any] = {}
        kind = body.get("type")
        self.one_time = kind == "one_time"
        self.removed = False
        """The change takes the payload away."""

    @property
    def target_before(self) -> Target | None:
        return None if self.old is None else self.old.target

    def refuse(self, pointer: str, detail: str) -> None:
        self.wrong.append(Refused(pointer, detail))

    def refuse_strangers(self) -> None:
        """Refuse unknown fields by name, and those of the contract that are not built yet."""
        if FIELDS.issuperset(self.body):
            return
        for field in self.body:
            if field not in FIELDS:
                detail = _LATER if field in NOT_YET else _UNKNOWN
                if f"{field}_s" in FIELDS:
                    detail = f"unknown field; {field}_s, in seconds"
                self.refuse(f"/{destination.escaped(field)}", detail)

    def key(self) -> str:
        key = self.body.get("key", "")
        if "key" in self.body and not (isinstance(key, str) and _KEY.fullmatch(key)):
            self.refuse("/key", f"1 to {KEY_MAX} printable ASCII characters without blanks")
            return ""
        return str(key)

    def read(self, sections: tuple[str, ...]) -> dict[str, Any]:
        for name in sections:
            _READERS[name](self)
        if self.wrong:
            raise invalid(with_values(self.wrong, self.body))
        return self.values

    # ------------------------------------------------------------ sections

    def when(self) -> None:
        found = read_when(self.body, self.at, self.bounds.min_interval_s)
        if isinstance(found, tuple):
            self.wrong.extend(found)
        else:
            self.values["schedule"] = found

    def span(self) -> None:
        schedule = self.values.get("schedule", None if self.old is None else self.old.schedule)
        found = read_span(self.body, schedule, self.at)
        if isinstance(found, tuple):
            self.wrong.extend(found)
        else:
            self.values.update(found)

    def exclude(self) -> None:
        given = self.body.get("exclude", [])
        self.values["exclude"] = ()
        if not isinstance(given, list) or len(given) > EXCLUDE_MAX:
            self.refuse("/exclude", f"a list of at most {EXCLUDE_MAX} names of calendars")
            return
        if given and self.one_time:
            self.refuse("/exclude", "not for a one-time job")
            return
        if given and self.body.get("from") == "completion":
            self.refuse("/exclude", "not beside from: a delay after an end has no slots")
            return
        for number, name in enumerate(given):
            if not isinstance(name, str) or not NAME.fullmatch(name):
                self.refuse(f"/exclude/{number}", f"the name of a calendar: {NAME_SAYS}")
            elif name in given[:number]:
                self.refuse(f"/exclude/{number}", f"{name} is given twice")
        self.values["exclude"] = tuple(given)

    def target(self) -> None:
        destination.read(self)

    def payload(self) -> None:
        given = [name for name in PAYLOADS if name in self.body]
        if len(given) > 1:
            self.refuse(f"/{given[1]}", f"given beside {given[0]}: one payload only")
            return
        if not given:
            self.no_payload()
            return
        name = given[0]
        body = self.payload_bytes(name)
        content_type = self.text("content_type", PAYLOADS[name])
        if body is None or content_type is None:
            return
        if len(body) > PAYLOAD_BYTES_MAX:
            self.refuse(f"/{name}", f"{len(body)} bytes; at most {PAYLOAD_BYTES_MAX}")
        self.values["payload"] = body
        self.media_type(content_type)

    def no_payload(self) -> None:
        old, given = self.old, "content_type" in self.body
        if old is not None and not self.removed:
            if not old.content_type:
                self.refuse("/content_type", _NO_PAYLOAD)
            elif (content_type := self.text("content_type")) is not None:
                self.media_type(content_type)
        elif given:
            self.refuse("/content_type", _NO_PAYLOAD)
        else:
            self.values["payload"] = b""
            self.values["content_type"] = ""

    def payload_bytes(self, name: str) -> bytes | None:
        value = self.body[name]
        if name == "payload":
            assert self.payload_sent is not None, "the bytes of payload come with the body"
            return self.payload_sent
        if not isinstance(value, str):
            self.refuse(f"/{name}", "a string")
            return None
        if name == "payload_text":
            return value.encode("utf-8")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            self.refuse(f"/{name}", "standard base64 with padding")
            return None

    def media_type(self, text: str) -> None:
        if text not in _USUAL_TYPES and not _MEDIA_TYPE.fullmatch(text):
            self.refuse("/content_type", f"{shown(text)} is not a media type such as text/plain")
        self.values["content_type"] = text

    def retry(self) -> None:
        default = ONE_TIME_DEFAULT if self.one_time else RECURRING_DEFAULT
        if "retry" not in self.body:
            self.values["retry"] = default
            return
        found = parse_retry(self.body["retry"], default)
        if isinstance(found, RetryPolicy):
            self.values["retry"] = found
        else:
            self.wrong.extend(found)

    def timeout(self) -> None:
        self.values["timeout_ms"] = self.duration(
            "timeout_s", TIMEOUT_MS, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX
        )

    def completion(self) -> None:
        policies.completion(self)

    def template(self) -> None:
        text = self.text("idempotency_key_template", DEFAULT_TEMPLATE.text)
        if text is None:
            return
        found = parse_template(text)
        if isinstance(found, Template):
            self.values["key_template"] = found.text
        else:
            self.wrong.append(found)

    def overlap(self) -> None:
        policies.overlap(self)

    def misfire(self) -> None:
        policies.misfire(self)

    def failures(self) -> None:
        policies.failures(self)

    def lateness(self) -> None:
        policies.lateness(self)

    def jitter(self) -> None:
        exact = self.body.get("exact", False)
        if not isinstance(exact, bool):
            self.refuse("/exact", "true or false")
            return
        # The ends of runs spread a fixed delay by themselves; jitter would only lengthen it.
        alone = self.one_time or counts_ends(self.body)
        default = 0 if exact or alone else JITTER_MS
        jitter = self.duration("jitter_s", default, 0, JITTER_MS_MAX)
        if exact and jitter:
            self.refuse("/jitter_s", "an exact job has no jitter")
        self.values["exact"] = exact
        self.values["jitter_ms"] = jitter
        self.placement(jitter)

    def placement(self, jitter_ms: int) -> None:
        placement = self.body.get("placement", PLACEMENTS[0])
        if placement not in PLACEMENTS:
            self.refuse("/placement", f"one of {', '.join(PLACEMENTS)}")
        if placement == PLACEMENTS[1] and counts_ends(self.body):
            self.refuse("/placement", "the ends of runs say when a fixed delay fires: leave it out")
        elif placement == PLACEMENTS[1] and not jitter_ms:
            self.refuse("/placement", "nothing to choose from without jitter_s: give a longer one")
        self.values["spread_ms"] = TO_CHOOSE if placement == PLACEMENTS[1] else e.BY_ID

    def callbacks(self) -> None:
        callback_body.read(self)

    def name(self) -> None:
        name = self.text("name", "")
        if name is not None and (len(name) > NAME_MAX or not _WORDS.fullmatch(name)):
            self.refuse("/name", f"at most {NAME_MAX} characters without control characters")
        self.values["name"] = name

    def labels(self) -> None:
        given = self.body.get("labels", {})
        if not isinstance(given, dict) or len(given) > LABELS_MAX:
            self.refuse("/labels", f"an object of at most {LABELS_MAX} names and values")
            return
        refused = len(self.wrong)
        for name, value in given.items():
            pointer = f"/labels/{destination.escaped(name)}"
            if not _LABEL.fullmatch(name):
                self.refuse(pointer, "a name has 1 to 63 letters, digits, '.', '_', '/', '-'")
            elif not isinstance(value, str) or len(value) > NAME_MAX or not _WORDS.fullmatch(value):
                self.refuse(pointer, f"a value is a text of at most {NAME_MAX} characters")
        if len(self.wrong) == refused:
            self.values["labels"] = tuple(sorted(given.items()))

    # ------------------------------------------------------------ values

    def text(self, field: str, default: str | None = None) -> str | None:
        """Return a string, its default, or None after refusing it."""
        value = self.body.get(field, default)
        if isinstance(value, str):
            return value
        self.refuse(f"/{field}", "a string" if field in self.body else "required")
        return None

    def duration(self, field: str, default: int, low: int, high: int) -> int:
        """Return a number of seconds as ms, or its default."""
        if field not in self.body:
            return default
        value = self.body[field]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and low / 1000 <= value <= high / 1000:
            ms: int = round(value * 1000)
            if abs(ms - value * 1000) < 1e-6:  # noqa: PLR2004 - a double is not exact
                return ms
        self.refuse(
            f"/{field}",
            f"a number of seconds from {low / 1000:g} to {high / 1000:g}, in whole milliseconds",
        )
        return default


_READERS: Final[dict[str, Callable[[_Reader], None]]] = {
    name: getattr(_Reader, name) for name in _SECTIONS
}
