"""A definition between its arrival and its answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from commandside.command_port import Accepted, Answer, CommandLog
from commandside.commands.asked import Asked, Sent
from commandside.commands.calendars import TenantCalendars, resolved
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions.patch import lifted
from commandside.definitions.sealing import (
    Body,
    refused_for_missing,
    secrets_in,
    secrets_of,
    targets_in,
    warnings,
)
from commandside.ports import Unavailable
from commandside.secret_port import Judged
from domain import callback
from domain.envelope import Decision
from domain.job import decide
from domain.problem import Problem
from domain.tenant import Caller


class Begun(msgspec.Struct):
    """A definition on its way; `outcome` is an error where it could not be judged or appended."""

    sent: Sent
    asked: Asked
    values: dict[str, Any] = {}
    key: str = ""
    body: Body | None = None
    """The payload, where it is too large for the job's events."""
    new: decide.NewJob | None = None
    decision: Decision | None = None
    outcome: Answer | Exception | None = None
    warnings: Sequence[str] = ()

    def decide(self, caller: Caller, at: int) -> None:
        """Decide on it as on one that is new."""
        assert self.new is not None
        by = decide.By(at, caller.kid, "", self.asked.command)
        decision = decide.define(self.new, None, by)
        assert isinstance(decision, Decision), "a job that does not exist can be defined"
        self.decision = decision

    @property
    def is_new(self) -> bool:
        """Whether it made a job, just now."""
        return isinstance(self.outcome, Accepted) and not self.outcome.replayed


async def find_secrets(secrets: SecretKeeper, tenant_id: bytes, begun: Sequence[Begun]) -> None:
    """Refuse definitions whose targets name secrets that are not there."""
    given = [(new, targets_in(new.values)) for new in begun if new.outcome is None]
    naming = [(new, targets) for new, targets in given if secrets_of(targets)]
    names = {name for _, targets in naming for name in secrets_of(targets)}
    try:
        judged = await secrets.judged(tenant_id, names)
    except Unavailable as error:
        for new, _ in naming:
            new.outcome = error
        return
    for new, targets in naming:
        new.outcome = refused_for_missing(targets, judged)
        new.warnings = warnings(targets, judged)


async def judge_patch(
    log: CommandLog, secrets: SecretKeeper, asked: Asked, patch: Mapping[str, Any]
) -> Judged:
    """Return what is known of the secrets that patched targets may name."""
    if patch.keys().isdisjoint(("target", *callback.NAMES)):
        return Judged()
    standing = await log.standing(asked.job_id)
    if standing is None or standing.job.facts.tenant_id != asked.caller.tenant_id:
        return Judged()
    names = secrets_in(lifted(patch), standing.job.facts.spec)
    return await secrets.judged(asked.caller.tenant_id, names)


async def find_calendars(
    calendars: TenantCalendars, tenant_id: bytes, excluding: Sequence[Begun]
) -> None:
    """Find the calendars of definitions, noting that their jobs will use them."""
    uses = [(new.asked.job_id, new.values["exclude"]) for new in excluding]
    known = await calendars.claim(tenant_id, uses)
    for new in excluding:
        try:
            found = resolved(new.values["exclude"], known)
        except Problem as problem:
            new.outcome = problem
        else:
            new.values = {**new.values, "exclusions": found}
