"""What the commands' bodies look like, as JSON Schema, for people and tools.

The judge of a body is `commandside.definitions.definition`; this says field by field what it takes.
"""

from typing import Any, Final

from commandside.commands.backfill import REASON_MAX
from commandside.commands.preview import COUNT, COUNT_MAX, LOADS
from commandside.commands.redrive import PER_SECOND, PER_SECOND_MAX, REDRIVES, REDRIVES_MAX
from commandside.definitions import definition as d
from commandside.definitions import policies as p
from commandside.definitions.calendar_body import (
    EXCLUDE_MAX,
    GIVEN_MAX,
    NAME,
    WEEKLY_MAX,
)
from commandside.definitions.when import PARTS_MAX, RUNS_MAX
from commandside.secret_port import SCHEMES
from domain.callback import NAMES
from domain.idempotency import TEMPLATE_BYTES_MAX
from domain.job.events import ALLOW, LIMITS
from domain.job.resume import CATCH_UPS
from domain.queue_target import CONNECTION, KEY_BYTES_MAX
from domain.retry import ATTEMPTS_MAX
from domain.run import accepted as a
from domain.schedule.cron import DIALECTS
from domain.schedule.delay import ORIGINS
from domain.schedule.every import DURATION_LIMIT
from domain.schedule.rrule import RRULE_LIMIT
from domain.schedule.schedule import TEXT_LIMIT
from domain.strict_json import STRING_MAX
from domain.target import HEADERS_MAX, METHODS, URL_LENGTH_MAX


def _text(description: str, **more: object) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _seconds(low_ms: int, high_ms: int, description: str) -> dict[str, Any]:
    return {
        "type": "number",
        "minimum": low_ms / 1000,
        "maximum": high_ms / 1000,
        "description": description,
    }


def _object(properties: dict[str, Any], *required: str, description: str = "") -> dict[str, Any]:
    shape: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return shape | {"description": description} if description else shape


_HEADERS: Final = {
    "type": "object",
    "maxProperties": HEADERS_MAX,
    "additionalProperties": {
        "anyOf": [
            {"type": "string"},
            _object(
                {"secret": _text("its name"), "scheme": _text("such as Bearer, Basic")},
                "secret",
                description="a secret by its name, as it is at each attempt",
            ),
        ]
    },
    "description": "kept encrypted, and never shown again",
}
_CONNECTION: Final = _text(
    "a broker that your operator has named",
    pattern="^[a-z0-9][a-z0-9_-]{0,39}$",
    default=CONNECTION,
)
HTTP: Final = _object(
    {
        "kind": {"const": "http"},
        "url": _text("http or https, absolute", maxLength=URL_LENGTH_MAX),
        "method": {"enum": list(METHODS), "default": "POST"},
        "headers": _HEADERS,
        "credentials": _object(
            {"secret": _text("name of a secret that is user:password")},
            "secret",
            description="what a URL would have before its host; sent as the header Authorization",
        ),
    },
    "kind",
    "url",
    description="an HTTP endpoint",
)
KAFKA: Final = _object(
    {
        "kind": {"const": "kafka"},
        "topic": _text("that exists", pattern="^[A-Za-z0-9._-]{1,249}$"),
        "key": _text("of the message; default the job's id", maxLength=KEY_BYTES_MAX),
        "connection": _CONNECTION,
        "headers": _HEADERS,
    },
    "kind",
    "topic",
    description="a Kafka topic; a fire is one message",
)
AMQP: Final = _object(
    {
        "kind": {"const": "amqp"},
        "exchange": _text("that exists; default: straight to a queue", maxLength=127),
        "routing_key": _text("or the queue's name; default empty", maxLength=255),
        "connection": _CONNECTION,
        "headers": _HEADERS,
    },
    "kind",
    description="an exchange of an AMQP 0-9-1 broker; a fire is one message, which must be routed",
)
SQS: Final = _object(
    {
        "kind": {"const": "sqs"},
        "queue": _text("name of the queue, not its URL", maxLength=80),
        "group_id": _text("of a FIFO queue; default the job's id", maxLength=128),
        "connection": _CONNECTION,
        "headers": _HEADERS,
    },
    "kind",
    "queue",
    description="an SQS queue; a fire is one message",
)
TARGET: Final[dict[str, Any]] = {
    "oneOf": [HTTP, KAFKA, AMQP, SQS],
    "description": "where a fire goes",
}


def _callback(whose: str) -> dict[str, Any]:
    return {
        "oneOf": [*TARGET["oneOf"], {"const": False}],
        "description": f"who is told of a run that {whose}; false: nobody, whatever the default is",
    }


RETRY: Final = _object(
    {
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": ATTEMPTS_MAX},
        "backoff": {"enum": ["exponential", "fixed", "list"]},
        "base_s": _seconds(100, 3_600_000, "first delay"),
        "max_s": _seconds(100, 86_400_000, "longest delay"),
        "delays_s": {"type": "array", "items": {"type": "number"}, "maxItems": ATTEMPTS_MAX},
        "jitter": {"enum": ["full", "none"]},
        "max_age_s": _seconds(1_000, 30 * 86_400_000, "no retry later than this"),
        "statuses": {
            "type": "object",
            "additionalProperties": {"enum": ["retry", "dead", "pause"]},
            "description": "HTTP status to what follows it",
        },
    }
)
_FIELDS: Final[dict[str, Any]] = {
    "type": {"enum": ["one_time", "recurring"]},
    "run_at": _text("RFC 3339 with an offset, at most milliseconds; for one_time", maxLength=40),
    "schedule": _text(
        "cron fields of the dialect (vixie: five, or @hourly … @yearly); for recurring",
        maxLength=TEXT_LIMIT,
    ),
    "timezone": _text("IANA name; for recurring, except an exact interval"),
    "every": _text(
        "instead of schedule: an ISO 8601 duration such as PT90M or P1M", maxLength=DURATION_LIMIT
    ),
    "rrule": _text(
        "instead of schedule: a rule of RFC 5545 such as FREQ=MONTHLY;BYDAY=-1FR",
        maxLength=RRULE_LIMIT,
    ),
    "schedules": {
        "type": "array",
        "minItems": 1,
        "maxItems": PARTS_MAX,
        "items": {"type": "object", "description": "schedule, every or rrule, with its fields"},
        "description": "instead of schedule: several in one; a slot that they share is one run",
    },
    "anchor": _text(
        "where every and rrule begin (DTSTART), RFC 3339; default 2001-01-01 00:00 in the zone",
        maxLength=40,
    ),
    "from": {
        "enum": list(ORIGINS),
        "default": ORIGINS[0],
        "description": "what every is counted from: anchor (slots equally far apart), or "
        "completion (each run so long after the end of the one before, retries included; the "
        "first so long after the definition, or at starts_at or anchor)",
    },
    "dialect": {"enum": list(DIALECTS), "default": "vixie", "description": "of schedule"},
    "dst": _object(
        {"gap": {"enum": ["next", "skip"]}, "fold": {"enum": ["first", "last", "both"]}}
    ),
    "starts_at": _text("RFC 3339: no slot before it", maxLength=40),
    "ends_at": _text("RFC 3339: no slot after it", maxLength=40),
    "max_runs": {
        "type": "integer",
        "minimum": 1,
        "maximum": RUNS_MAX,
        "description": "the job is finished when so many occurrences have begun",
    },
    "exclude": {
        "type": "array",
        "maxItems": EXCLUDE_MAX,
        "uniqueItems": True,
        "items": {"type": "string", "pattern": f"^{NAME.pattern}$"},
        "description": "names of calendars: no slot on the times that they have",
    },
    "target": TARGET,
    "payload": {"description": "any JSON value of up to 1 MiB, sent byte for byte as given"},
    "payload_text": _text("a text as body; one payload only"),
    "payload_base64": _text("bytes as body; one payload only"),
    "content_type": _text("of the payload"),
    "retry": RETRY,
    "timeout_s": _seconds(d.TIMEOUT_MS_MIN, d.TIMEOUT_MS_MAX, "of one attempt, in all"),
    "heartbeat_timeout_s": _seconds(
        a.HEARTBEAT_MS_MIN,
        a.HEARTBEAT_MS_MAX,
        "of a handler that answered 202 with Tocsin-Completion: async: so long without a heartbeat"
        f" and the attempt is lost; default {a.HEARTBEAT_MS // 1000}",
    ),
    "max_run_time_s": _seconds(
        a.RUN_TIME_MS_MIN,
        a.RUN_TIME_MS_MAX,
        f"of such an attempt, in all; then it has failed; default {a.RUN_TIME_MS // 1000}",
    ),
    "idempotency_key_template": _text(
        "with {job_id} and {scheduled_ts}, each once", maxLength=TEMPLATE_BYTES_MAX
    ),
    "overlap": {
        "enum": list(p.OVERLAPS),
        "default": "skip",
        "description": "a slot that comes while a run is in flight: is skipped, runs beside it, "
        "waits (one slot, or overlap_limit of them), or takes its place",
    },
    "allow_overlap": {"type": "boolean", "description": "another word for overlap"},
    "overlap_limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": max(LIMITS.values()),
        "description": f"allow: runs at once, at most {LIMITS[ALLOW]}; buffer_all: slots that wait",
    },
    "misfire": {
        "enum": list(p.MISFIRES),
        "default": "latest",
        "description": "of slots missed by more than 60 s: the newest fires, all do, or none",
    },
    "catch_up_window_s": _seconds(p.WINDOW_MS_MIN, p.WINDOW_MS_MAX, "older slots do not fire"),
    "pause_after_failures": {
        "type": "integer",
        "minimum": 1,
        "maximum": p.FAILURES_MAX,
        "description": "runs that end dead in a row; the pause ends by itself, to try again",
    },
    "max_lateness_s": _seconds(p.LATENESS_MS_MIN, p.LATENESS_MS_MAX, "then: skipped, expired"),
    "jitter_s": _seconds(0, d.JITTER_MS_MAX, "spread of fires, fixed for each job"),
    "exact": {"type": "boolean", "default": False},
    "placement": {
        "enum": list(d.PLACEMENTS),
        "default": d.PLACEMENTS[0],
        "description": "within jitter_s: by the job's id, or in the second with the least load of "
        "the whole installation, chosen when the schedule is and the same for every fire",
    },
    "on_success": _callback("succeeded"),
    "on_failure": _callback("is dead"),
    "on_skipped": _callback("was skipped"),
    "name": _text("for people", maxLength=d.NAME_MAX),
    "labels": {
        "type": "object",
        "maxProperties": d.LABELS_MAX,
        "additionalProperties": {"type": "string", "maxLength": d.NAME_MAX},
    },
}
assert {*_FIELDS, "key"} == set(d.FIELDS), "every field that is read is described"

DEFINE: Final = _object(
    {"key": _text("your own name of the job, unique", maxLength=d.KEY_MAX), **_FIELDS},
    "type",
    "target",
    description="a job; defining a key again revises its job",
)
PREVIEW: Final = _object(
    {
        "key": DEFINE["properties"]["key"],
        **_FIELDS,
        "count": {"type": "integer", "minimum": 1, "maximum": COUNT_MAX, "default": COUNT},
        "after": _text("RFC 3339: fires after it; default now", maxLength=40),
        "load": {
            "enum": list(LOADS),
            "default": LOADS[0],
            "description": "of the tenant: by the hour, by the second too, or not at all",
        },
        "language": _text("of the description, such as de; default: as Accept-Language says"),
    },
    "type",
    description="a definition, of which all but its schedule may be left out",
)
PATCH: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {name: {"description": "as in a definition"} for name in _FIELDS},
    "additionalProperties": False,
    "description": "a merge patch (RFC 7396): fields of a definition, null for the default",
}
REASON: Final = _text("kept in the audit trail", maxLength=REASON_MAX)
BECAUSE: Final = _object({"reason": REASON})
PAUSE: Final = _object(
    {
        "reason": REASON,
        "until": _text("RFC 3339 with an offset: the pause ends by itself then", maxLength=40),
    }
)
RESUME: Final = _object(
    {
        "reason": REASON,
        "catch_up": {
            "enum": list(CATCH_UPS),
            "description": "which slots of the pause fire; a one-time job does if this is absent",
        },
    }
)
TRIGGER: Final = _object(
    {
        "reason": REASON,
        "overlap": {"enum": ["skip", "allow"], "description": "allow: beside a run in flight"},
    }
)
SIGNING_KEY: Final = _object(
    {
        "scheme": {"enum": list(SCHEMES), "default": "v1"},
        "overlap_s": {
            "type": "integer",
            "minimum": 0,
            "default": 86_400,
            "description": "for how long the keys of this scheme before it sign too",
        },
    }
)
SECRET: Final = _object(
    {"value": _text("printable ASCII; user:password for the scheme Basic", maxLength=1024)}, "value"
)
CALLBACKS: Final = _object(
    dict.fromkeys(NAMES, TARGET),
    description="who is told how occurrences end, where their jobs do not say it; one at least",
)
BACKFILL: Final = _object(
    {
        "from": _text("RFC 3339 with an offset: the first instant of the range", maxLength=40),
        "to": _text("RFC 3339 with an offset: the last instant, not in the future", maxLength=40),
        "reason": REASON,
        "rerun": {
            "type": "boolean",
            "default": False,
            "description": "slots that ran before run again, each with a key of its own",
        },
        "dry_run": {
            "type": "boolean",
            "default": False,
            "description": "say what would run, and do nothing",
        },
    },
    "from",
    "to",
)
_ENDS: Final = {
    "type": "object",
    "properties": {"from": {"type": "string"}, "until": {"type": "string"}},
    "required": ["from", "until"],
    "additionalProperties": False,
}
CALENDAR: Final = _object(
    {
        "dates": {
            "type": "array",
            "maxItems": GIVEN_MAX,
            "items": {"type": "string"},
            "description": "whole days such as 2026-12-25",
        },
        "ranges": {
            "type": "array",
            "maxItems": GIVEN_MAX,
            "items": _ENDS,
            "description": "from a date, a local time or an instant until another; a date in until "
            "is included",
        },
        "weekly": {
            "type": "array",
            "maxItems": WEEKLY_MAX,
            "items": _ENDS,
            "description": "windows of each week, such as from sat 00:00 until mon 06:00",
        },
        "timezone": _text("IANA name; without one, the zone of each job's schedule"),
        "ics": _text(
            "an iCalendar file, each event of which is excluded; or send it as text/calendar",
            maxLength=STRING_MAX,
        ),
    },
    description="what jobs that name this calendar in exclude leave out",
)
NOTE_MAX: Final = 256
HEARTBEAT: Final = _object(
    {
        "progress": {"type": "integer", "minimum": 0, "maximum": 100},
        "note": _text("beside progress: where it is", maxLength=NOTE_MAX),
    }
)
COMPLETE: Final = _object(
    {"result": {"description": "any JSON value; its first 1024 bytes are kept with the attempt"}}
)
FAIL: Final = _object(
    {
        "reason": _text("kept with the attempt", maxLength=REASON_MAX),
        "retry": {
            "type": "boolean",
            "default": True,
            "description": "false: the run ends here, whatever its retry policy says",
        },
    }
)
REDRIVE: Final = _object(
    {
        "job_id": _text("dead letters of this job only", maxLength=35),
        "labels": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 10,
            "additionalProperties": {"type": "string"},
            "description": "dead letters of jobs that have all of these",
        },
        "cause": _text("of the end: attempts, age, lost, status …", maxLength=64),
        "since": _text("RFC 3339 with an offset: they ended then, or later", maxLength=40),
        "until": _text("RFC 3339 with an offset: they ended then, or before", maxLength=40),
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": REDRIVES_MAX,
            "default": REDRIVES,
            "description": "so many at most, the oldest first",
        },
        "per_second": {
            "type": "integer",
            "minimum": 1,
            "maximum": PER_SECOND_MAX,
            "default": PER_SECOND,
            "description": "so many are due in each second from now on",
        },
        "dry_run": {
            "type": "boolean",
            "default": False,
            "description": "say what would run, and do nothing",
        },
        "reason": REASON,
    }
)
