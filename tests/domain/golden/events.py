"""One event of each kind with every field set, and with only the fields that it must have."""

from typing import Final

import msgspec

from domain.callback import CallbackOf, Callbacks
from domain.catalogue import DomainEvent
from domain.ids import REDRIVE, REDRIVE_OWN
from domain.job import events as job
from domain.payload import PayloadRef
from domain.retry import RetryPolicy
from domain.run import events as run
from domain.schedule.exclusion import Exclusion, packed
from domain.schedule.schedule import (
    Cron,
    Every,
    FixedDelay,
    OneTime,
    RRule,
    ScheduleSpec,
    Union,
)
from domain.stretch import Stretch
from domain.target import AmqpTarget, Header, HttpTarget, KafkaTarget, SqsTarget, Target

JOB: Final = bytes.fromhex("00010203040506070809a0a1a2a3a4a5")
TENANT: Final = bytes.fromhex("10111213141516171819b0b1b2b3b4b5")
RUN: Final = bytes.fromhex("0191aabbccddeeff8081828384858687")
SESSION: Final = bytes.fromhex("20212223242526272829c0c1c2c3c4c5")
NONCE: Final = bytes.fromhex("0102030405060708")
AT: Final = 1_800_000_000_123
SLOT: Final = 1_800_000_060_000

PASSED: Final = (
    run.Passed(SLOT - 120_000, SLOT - 60_000, 2, run.MISFIRE, "outage"),
    run.Passed(SLOT - 30_000, SLOT - 30_000, None, run.OVERLAP),
)
CATCH_UP: Final = run.CatchUp(SLOT - 600_000, SLOT - 60_000, 9)

PLAIN_SPEC: Final = job.JobSpec(
    OneTime(SLOT),
    HttpTarget("https", "example.com", 443, "/v1/hook", "POST", (), "https://example.com/v1/hook"),
    RetryPolicy(16, "exponential", 5_000, 3_600_000),
    30_000,
    "{job_id}-{scheduled_ts}",
)
FULL_SPEC: Final = job.JobSpec(
    Cron("0 9 * * 1-5", "0 9 * * MON-FRI", "Europe/Berlin", "vixie", "skip", "first"),
    HttpTarget(
        "http",
        "127.0.0.1",
        8080,
        "/hook?x=1",
        "PUT",
        (Header("X-Token", b"\x01sealed"),),
        "http://127.0.0.1:8080/hook?x=1",
    ),
    RetryPolicy(
        5, "list", 100, 60_000, (100, 1_000), "none", 86_400_000, ((404, "retry"), (410, "dead"))
    ),
    60_000,
    "order-{job_id}-{scheduled_ts}",
    b"\x01sealed body",
    "application/json",
    5_000,
    exact=True,
    overlap=job.ALLOW,
    overlap_limit=7,
    misfire=job.ALL,
    catch_up_window_ms=3_600_000,
    max_lateness_ms=90_000,
    name="nightly invoices",
    labels=(("team", "billing"), ("env", "prod")),
    starts_at=AT,
    ends_at=SLOT + 86_400_000,
    max_runs=100,
    heartbeat_timeout_ms=30_000,
    max_run_time_ms=7_200_000,
    exclude=("cal_holidays",),
)


def _of(schedule: ScheduleSpec) -> job.Defined:
    spec = msgspec.structs.replace(PLAIN_SPEC, schedule=schedule)
    return job.Defined(AT, TENANT, 1, spec, AT - 1)


def _to(target: Target) -> job.Defined:
    spec = msgspec.structs.replace(PLAIN_SPEC, target=target)
    return job.Defined(AT, TENANT, 1, spec, AT - 1)


SEALED: Final = (Header("X-Team", b"\x01sealed"),)
PAUSING_SPEC: Final = msgspec.structs.replace(FULL_SPEC, pause_after=3)
EXCLUSIONS: Final = (
    Exclusion(
        "holidays",
        3,
        "Europe/Berlin",
        packed([(1_798_156_800, 1_798_416_000)]),
        packed([(1_800_000_000, 1_800_003_600)]),
        packed([(432_000, 604_800)]),
    ),
)
EXCLUDING_SPEC: Final = msgspec.structs.replace(
    PAUSING_SPEC, exclude=("holidays",), exclusions=EXCLUSIONS
)
NAMING_SPEC: Final = msgspec.structs.replace(
    EXCLUDING_SPEC,
    target=msgspec.structs.replace(
        EXCLUDING_SPEC.target,
        headers=(Header("X-Token", b"sealed"), Header("Authorization", b"", "crm", "Bearer")),
    ),
)
PLACED_SPEC: Final = msgspec.structs.replace(NAMING_SPEC, spread_ms=4_000)
STORED_SPEC: Final = msgspec.structs.replace(
    PLACED_SPEC, payload_ref=PayloadRef(bytes(range(32)), 1_048_607)
)

TOLD: Final = Callbacks(
    HttpTarget("https", "example.com", 443, "/ok", "PUT", SEALED, "https://example.com/ok"),
    KafkaTarget("main", "failures", "", ()),
    None,
    (2,),
)
TELLING_SPEC: Final = msgspec.structs.replace(
    STORED_SPEC, callbacks=TOLD, callback_of=CallbackOf(JOB, RUN, RUN, 5, 1, 3)
)

EVENTS: Final[dict[str, DomainEvent]] = {
    "job.defined.v1 least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 full": job.Defined(AT, TENANT, 2, FULL_SPEC, AT, "invoices", "k_0123", "2026b"),
    "job.defined.v1 every": _of(Every("P1M", SLOT, "Europe/Berlin", 0, 0, 1, "skip", "last")),
    "job.defined.v1 rrule": _of(
        RRule("FREQ=DAILY;COUNT=3", "rrule:FREQ=DAILY;COUNT=3", SLOT, "UTC", "next", "both")
    ),
    "job.defined.v1 union": _of(
        Union((Cron("0 9 * * *", "0 9 * * *", "UTC"), Every("PT90M", SLOT, step_ms=5_400_000)))
    ),
    "job.defined.v1 delay": _of(FixedDelay("PT5M", 300_000, SLOT, "Europe/Berlin")),
    "job.defined.v1 pausing least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 pausing full": job.Defined(
        AT, TENANT, 2, PAUSING_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.defined.v1 kafka": _to(KafkaTarget("main", "orders", "customer-7", SEALED)),
    "job.defined.v1 amqp": _to(AmqpTarget("rabbit", "events", "order.created", SEALED)),
    "job.defined.v1 sqs": _to(SqsTarget("eu", "orders.fifo", "customer-7", SEALED)),
    "job.revised.v1 pausing full": job.Revised(
        AT, PAUSING_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.defined.v1 excluding least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 excluding full": job.Defined(
        AT, TENANT, 2, EXCLUDING_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.revised.v1 excluding full": job.Revised(
        AT, EXCLUDING_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.replanned.v1 excluding least": job.Replanned(AT, AT, "2026c", "calendar"),
    "job.replanned.v1 excluding full": job.Replanned(
        AT, AT, "2026c", "calendar", PASSED, TENANT, EXCLUSIONS
    ),
    "job.defined.v1 naming full": job.Defined(
        AT, TENANT, 2, NAMING_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.revised.v1 naming full": job.Revised(
        AT, NAMING_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.defined.v1 placed least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 placed full": job.Defined(
        AT, TENANT, 2, PLACED_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.revised.v1 placed full": job.Revised(
        AT, PLACED_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.defined.v1 placed kafka": _to(KafkaTarget("main", "orders", "customer-7", SEALED)),
    "job.defined.v1 placed amqp": _to(AmqpTarget("rabbit", "events", "order.created", SEALED)),
    "job.defined.v1 placed sqs": _to(SqsTarget("eu", "orders.fifo", "customer-7", SEALED)),
    "job.defined.v1 stored least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 stored full": job.Defined(
        AT, TENANT, 2, STORED_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.revised.v1 stored full": job.Revised(
        AT, STORED_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.defined.v1 stored kafka": _to(KafkaTarget("main", "orders", "customer-7", SEALED)),
    "job.defined.v1 stored amqp": _to(AmqpTarget("rabbit", "events", "order.created", SEALED)),
    "job.defined.v1 stored sqs": _to(SqsTarget("eu", "orders.fifo", "customer-7", SEALED)),
    "job.defined.v1 telling least": job.Defined(AT, TENANT, 1, PLAIN_SPEC, AT - 1),
    "job.defined.v1 telling full": job.Defined(
        AT, TENANT, 2, TELLING_SPEC, AT, "invoices", "k_0123", "2026b"
    ),
    "job.revised.v1 telling full": job.Revised(
        AT, TELLING_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.defined.v1 telling kafka": _to(KafkaTarget("main", "orders", "customer-7", SEALED)),
    "job.defined.v1 telling amqp": _to(AmqpTarget("rabbit", "events", "order.created", SEALED)),
    "job.defined.v1 telling sqs": _to(SqsTarget("eu", "orders.fifo", "customer-7", SEALED)),
    "job.failing.v1 least": job.Failing(AT, AT, 0),
    "job.failing.v1 full": job.Failing(AT, AT, 2, TENANT),
    "job.revised.v1 least": job.Revised(AT, PLAIN_SPEC, 1, AT),
    "job.revised.v1 full": job.Revised(
        AT, FULL_SPEC, 3, AT, RUN, PASSED, "k_0123", "2026b", TENANT
    ),
    "job.paused.v1 least": job.Paused(AT, AT),
    "job.paused.v1 full": job.Paused(
        AT, AT, RUN, (RUN, JOB), "gone", "out of order", PASSED, "k_0123", TENANT
    ),
    "job.paused.v1 until least": job.Paused(AT, AT),
    "job.paused.v1 until full": job.Paused(
        AT, AT, RUN, (RUN, JOB), "gone", "out of order", PASSED, "k_0123", TENANT, AT + 60_000
    ),
    "job.resumed.v1 least": job.Resumed(AT, AT),
    "job.resumed.v1 full": job.Resumed(AT, AT, "repaired", PASSED, CATCH_UP, "k_0123", TENANT),
    "job.cancelled.v1 least": job.Cancelled(AT, AT),
    "job.cancelled.v1 full": job.Cancelled(AT, AT, "done with", PASSED, (RUN,), "k_0123", TENANT),
    "job.finished.v1 least": job.Finished(AT, AT),
    "job.finished.v1 full": job.Finished(AT, AT, PASSED, TENANT),
    "job.run-requested.v1 least": job.RunRequested(AT, RUN, SLOT, SESSION),
    "job.run-requested.v1 full": job.RunRequested(AT, RUN, SLOT, SESSION, "by hand", "k_0123"),
    "job.replanned.v1 least": job.Replanned(AT, AT, "2026c", "zone data"),
    "job.replanned.v1 full": job.Replanned(AT, AT, "2026c", "zone data", PASSED, TENANT),
    "job.catch-up-closed.v1 least": job.CatchUpClosed(AT, AT),
    "job.catch-up-closed.v1 full": job.CatchUpClosed(AT, AT, PASSED, TENANT),
    "job.counted.v1 least": job.Counted(AT, AT, 1),
    "job.counted.v1 full": job.Counted(AT, AT, 3, TENANT),
    "job.backfill-requested.v1 least": job.BackfillRequested(AT, SLOT, AT, (), False, 0, 0, 0, 0),
    "job.backfill-requested.v1 full": job.BackfillRequested(
        AT,
        SLOT,
        AT,
        (Stretch(SLOT, 60_000, 3), Stretch(SLOT + 600_000, 0, 1)),
        True,
        9,
        1,
        2,
        3,
        "2026c",
        "the receiver was down",
        "k_0123",
        TENANT,
    ),
    "job.redrive-requested.v1 least": job.RedriveRequested(AT, (), ()),
    "job.redrive-requested.v1 full": job.RedriveRequested(
        AT, (RUN, JOB), (JOB, RUN), "the receiver was down", "k_0123", TENANT
    ),
    "job.backfill-moved.v1 least": job.BackfillMoved(AT, SLOT),
    "job.backfill-moved.v1 full": job.BackfillMoved(AT, SLOT, TENANT),
    "run.scheduled.v1 least": run.Scheduled(
        AT, JOB, TENANT, 1, 0, 0, SLOT, SLOT, 1, 1, 1, SLOT - 60_000
    ),
    "run.scheduled.v1 full": run.Scheduled(
        AT, JOB, TENANT, 2, 0, 1, SLOT, SLOT + 250, 3, 5, 4, AT, "retry", PASSED, CATCH_UP
    ),
    "run.scheduled.v1 redrive": run.Scheduled(
        AT, JOB, TENANT, 1, REDRIVE, 0, SLOT, AT, 1, 5, 4, SLOT - 60_000, "redrive"
    ),
    "run.scheduled.v1 redrive own": run.Scheduled(
        AT, JOB, TENANT, 1, REDRIVE_OWN, 0, SLOT, AT, 1, 5, 4, SLOT - 60_000, "redrive"
    ),
    "run.leased.v1": run.Leased(SESSION, NONCE, AT, AT + 61_000, 1),
    "run.accepted.v1": run.Accepted(AT, AT + 30_000),
    "run.extended.v1": run.Extended(AT, AT + 60_000),
    "run.progressed.v1 least": run.Progressed(AT, 40),
    "run.progressed.v1 full": run.Progressed(AT, 100, "last page"),
    "run.fired.v1 least": run.Fired(
        AT, JOB, TENANT, 0, SLOT, SLOT, AT - 5, 1, 2, run.OK, run.SUCCEEDED
    ),
    "run.fired.v1 full": run.Fired(
        AT,
        JOB,
        TENANT,
        1,
        SLOT,
        SLOT + 250,
        AT - 5,
        2,
        6,
        run.FAILED,
        run.DEAD,
        503,
        "response_too_large",
        1_234_567,
        late=True,
        headers=(("content-type", "text/plain"),),
        body=b"no",
        sent_at=AT - 2,
        cause="attempts",
    ),
    "run.completed.v1 least": run.Completed(AT, run.SUCCEEDED),
    "run.completed.v1 full": run.Completed(
        AT, run.DEAD, "expired", run.Occurrence(JOB, TENANT, 0, SLOT, SLOT, 2)
    ),
    "run.withdrawn.v1": run.Withdrawn(AT, run.SUPERSEDED),
    "run.withdrawn.v1 least": run.Withdrawn(AT, run.PAUSED),
    "run.withdrawn.v1 full": run.Withdrawn(
        AT, run.SUPERSEDED, run.Occurrence(JOB, TENANT, 0, SLOT, SLOT + 250, 1)
    ),
    "run.skipped.v1 least": run.Skipped(AT, JOB, TENANT, SLOT, run.OVERLAP),
    "run.skipped.v1 full": run.Skipped(
        AT, JOB, TENANT, SLOT, run.EXPIRED, "max_lateness", 1, SLOT + 250
    ),
    "run.cancelled.v1 least": run.Cancelled(AT, JOB, TENANT, SLOT),
    "run.cancelled.v1 full": run.Cancelled(
        AT, JOB, TENANT, SLOT, "job cancelled", 3, 1, SLOT + 250
    ),
}
"""By stable name, and which of the two it is."""

READ_ONLY: Final = frozenset(
    {
        "run.withdrawn.v1",
        "job.paused.v1 least",
        "job.paused.v1 full",
        "job.defined.v1 least",
        "job.defined.v1 full",
        "job.defined.v1 every",
        "job.defined.v1 rrule",
        "job.defined.v1 union",
        "job.revised.v1 least",
        "job.revised.v1 full",
        "job.defined.v1 pausing least",
        "job.defined.v1 pausing full",
        "job.revised.v1 pausing full",
        "job.defined.v1 excluding least",
        "job.defined.v1 excluding full",
        "job.revised.v1 excluding full",
        "job.defined.v1 naming full",
        "job.revised.v1 naming full",
        "job.defined.v1 delay",
        "job.defined.v1 kafka",
        "job.defined.v1 amqp",
        "job.defined.v1 sqs",
        "job.defined.v1 placed least",
        "job.defined.v1 placed full",
        "job.revised.v1 placed full",
        "job.defined.v1 placed kafka",
        "job.defined.v1 placed amqp",
        "job.defined.v1 placed sqs",
        "job.defined.v1 stored least",
        "job.defined.v1 stored full",
        "job.revised.v1 stored full",
        "job.defined.v1 stored kafka",
        "job.defined.v1 stored amqp",
        "job.defined.v1 stored sqs",
        "job.replanned.v1 least",
        "job.replanned.v1 full",
    }
)
"""Recorded before their kind had its last fields: read for ever, and not written any more."""
