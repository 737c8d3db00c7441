"""The commands of tenants: define, change, pause, resume, cancel and trigger a job.

Each is one decision of the domain, made under the job's shard lock from fresh state, and answered
from that state. Nothing here knows HTTP, but for the published problems that a refusal is.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from commandside.command_port import Accepted, CommandLog
from commandside.commands import past
from commandside.commands.answers import Answers
from commandside.commands.asked import Asked, Done, Sent
from commandside.commands.backfill import MOVED, Known, decide_backfill, look, requested
from commandside.commands.begun import Begun, find_calendars, find_secrets, judge_patch
from commandside.commands.calendars import TenantCalendars, refuse_unusable, resolved
from commandside.commands.outcomes import accepted_of, told
from commandside.commands.payloads import Payloads, Writing
from commandside.commands.replies import backfilled, reply
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions import placement, sealing
from commandside.definitions.definition import Definitions
from commandside.definitions.placement import Choices, Placed, Placer, Unplaced, Wanted
from commandside.definitions.sealing import Body, Sealer, Unwritten, refused_for_missing, warnings
from commandside.ports import KeyGone, NewId, Unavailable, Vault
from domain import outlook
from domain.chain import Link
from domain.envelope import Rejected
from domain.ids import MANUAL, RUN, job_id_of_key, run_id, text
from domain.job import decide
from domain.job import state as s
from domain.job.backfill import Range
from domain.job.resume import USUAL
from domain.opaque import Seal
from domain.problem import Problem
from domain.run.state import OpenRun, Ready
from domain.schedule.schedule import ScheduleBreach
from domain.tenant import Caller

BACKFILL_TRIES: Final = 10
Verb = Callable[[s.JobState | None, tuple[OpenRun, ...], decide.By], decide.Outcome]
_ABSENT: Final = Rejected("absent", "there is no such job")


class Jobs:
    """Commands on jobs. Raises Problem for refusals, Unavailable when the log cannot be reached."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        log: CommandLog,
        vault: Vault,
        secrets: SecretKeeper,
        definitions: Definitions,
        calendars: TenantCalendars,
        payloads: Payloads,
        *,
        now: Callable[[], int],
        new_id: NewId,
        positions: Seal,
        zone_data: str,
    ) -> None:
        """`now` is ms of the database clock as estimated; `positions` makes position tokens."""
        self._log = log
        self._vault = vault
        self._secrets = secrets
        self._definitions = definitions
        self._calendars = calendars
        self._payloads = payloads
        self._now = now
        self._new_id = new_id
        self._answers = Answers(log, positions)
        self._zone_data = zone_data
        self._placer = Placer(log)

    # ------------------------------------------------------------ define

    async def define(self, caller: Caller, sent: Sent) -> Done:
        """Define a job, or revise the one that has this `key`."""
        (answer,) = await self.define_all(caller, (sent,), brief=False)
        if isinstance(answer, Done):
            return answer
        raise answer

    async def define_all(
        self, caller: Caller, definitions: Sequence[Sent], *, brief: bool = True
    ) -> list[Done | BaseException]:
        """Define jobs side by side; return the answer to each, or the error instead of it.

        No two may name the same `key`. A `brief` answer does not list the next occurrences, but for
        the first.
        """
        at = self._now()
        begun = [self._begin(caller, sent, at) for sent in definitions]
        await find_secrets(self._secrets, caller.tenant_id, begun)
        excluding = [new for new in begun if new.outcome is None and new.values["exclude"]]
        if excluding:
            await find_calendars(self._calendars, caller.tenant_id, excluding)
        for new in begun:
            if new.outcome is None:
                self._seal(new, at)
        placed = await self._place(caller, begun, at)
        try:
            await self._payloads.write_for(self._log, begun)
            appends = [new for new in begun if new.decision is not None]
            made = await self._log.define_all([new.decision for new in appends if new.decision])
        finally:
            if placed is not None:
                self._placer.release(placed)
        for new, outcome in zip(appends, made, strict=True):
            new.outcome = outcome
        if excluding:
            made_jobs = [new.outcome for new in excluding if new.is_new]
            await self._calendars.settle(o.job for o in made_jobs if isinstance(o, Accepted))
        rare = [new for new in begun if not new.is_new]
        settled = await asyncio.gather(*map(self._settle, rare), return_exceptions=True)
        others = iter(settled)
        return [self._first(new, brief=brief) if new.is_new else next(others) for new in begun]

    def _begin(self, caller: Caller, sent: Sent, at: int) -> Begun:
        """Judge a definition by itself."""
        key = sent.body.get("key")
        job_id = self._job_id(caller.tenant_id, key, sent.idempotency_key)
        begun = Begun(sent, Asked(caller, job_id, "define", sent.raw, sent.idempotency_key))
        try:
            found = self._definitions.define(sent.body, sent.payload, at, caller.tenant_id)
        except Exception as error:  # noqa: BLE001 - the answer to this one; its neighbours have their own
            begun.outcome = told(error)
            return begun
        begun.values, begun.key = found.values, found.key
        return begun

    def _seal(self, begun: Begun, at: int) -> None:
        """Seal what was judged; decide on it, unless its second has still to be chosen."""
        asked = begun.asked
        caller, job_id = asked.caller, asked.job_id
        try:
            sealer = self._sealer(caller.tenant_id, job_id)
            spec = sealer.new(begun.values)
            begun.body = sealer.body
            refuse_unusable(spec, at)
            begun.new = decide.NewJob(job_id, caller.tenant_id, spec, begun.key, self._zone_data)
            if not placement.is_open(spec):
                begun.decide(caller, at)
        except Exception as error:  # noqa: BLE001 - as above
            begun.outcome = told(error)

    async def _place(self, caller: Caller, begun: Sequence[Begun], at: int) -> Placed | None:
        """Choose a second for those that ask for the emptiest one, and decide on them."""
        waits = [
            (one, one.new)
            for one in begun
            if one.new and one.outcome is None and placement.is_open(one.new.spec)
        ]
        if not waits:
            return None
        try:
            placed = await self._placer.choose(
                [Wanted(new.job_id, new.spec, at) for _, new in waits]
            )
        except (Unavailable, ScheduleBreach) as error:
            for one, _ in waits:
                one.outcome = told(error)
            return None
        for (one, new), spec in zip(waits, placed.specs, strict=True):
            one.new = msgspec.structs.replace(new, spec=spec)
            try:
                one.decide(caller, at)
            except Exception as error:  # noqa: BLE001 - as above
                one.outcome = told(error)
        return placed

    def _first(self, begun: Begun, *, brief: bool) -> Done:
        """Answer a definition that made a job."""
        accepted, decision = begun.outcome, begun.decision
        assert isinstance(accepted, Accepted)
        assert decision is not None
        planned = next((p.after for p in decision.slices if isinstance(p.after, Ready)), None)
        link = Link(planned.facts.nominal, planned.facts.due_at) if planned else None
        return self._answers.defined(
            accepted.job, accepted, brief=brief, link=link, more=begun.warnings
        )

    async def _settle(self, begun: Begun) -> Done:
        """Answer a definition that did not make a job."""
        outcome = begun.outcome
        assert outcome is not None, "the log has an outcome for each"
        if isinstance(outcome, Problem):
            return await self._repeated(begun.asked, begun.sent, outcome)
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Rejected) and begun.new is not None and begun.new.key:
            return await self._define_again(
                begun.asked, begun.new, begun.values, begun.body, begun.warnings
            )
        return await self._answers.replay(accepted_of(outcome))

    async def _define_again(
        self,
        asked: Asked,
        new: decide.NewJob,
        values: dict[str, Any],
        body: Body | None = None,
        more: Sequence[str] = (),
    ) -> Done:
        """Give the job of this key, which exists, this spec, or its next life."""
        created = False

        def again(
            job: s.JobState | None, runs: tuple[OpenRun, ...], by: decide.By
        ) -> decide.Outcome:
            nonlocal created
            created = job is None or isinstance(job, s.Cancelled)
            if job is None or isinstance(job, s.Cancelled):
                writing.check(new.spec)
                return writing.named(decide.define(new, job, by))
            old = job.facts.spec
            changed = {**values, "exclusions": values.get("exclusions", ())}
            spec = self._sealer(new.tenant_id, new.job_id, writing.body).over(changed, old)
            spec = choices.fit(job.facts.job_id, spec, old, by.at)
            return writing.named(decide.revise(job, runs, spec, self._zone_data, by))

        choices, writing = Choices(self._placer, new.spec), Writing(self._payloads, body)
        accepted = await writing.around(
            lambda: choices.around(lambda: self._command(asked, again, mine=False))
        )
        await self._calendars.settle((accepted.job,))
        if accepted.replayed:
            return await self._answers.replay(accepted)
        return self._answers.defined(accepted.job, accepted, created=created, more=more)

    async def _repeated(self, asked: Asked, sent: Sent, problem: Problem) -> Done:
        """Answer a definition that is refused now, but was accepted before its instant passed.

        Raises `problem` for any other.
        """
        stale = [reason.pointer for reason in problem.errors] in (["/run_at"], ["/ends_at"])
        if not stale:
            raise problem
        command = asked.command
        if command is not None:
            refused = Rejected(problem.code, problem.detail)
            outcome = await self._log.command(
                asked.job_id, command.command_id, command.body_hash, lambda *_: refused
            )
            if not isinstance(outcome, Rejected):
                return await self._answers.replay(accepted_of(outcome))
        standing = await self._log.standing(asked.job_id) if sent.body.get("key") else None
        if standing is None:
            raise problem
        job = standing.job.facts
        found = self._definitions.define(sent.body, sent.payload, job.defined_at, job.tenant_id)
        if isinstance(standing.job, s.Cancelled) or found.values["schedule"] != job.spec.schedule:
            raise problem
        if found.values["exclude"] != job.spec.exclude:
            raise problem
        new = decide.NewJob(asked.job_id, job.tenant_id, job.spec, found.key, self._zone_data)
        values = {**found.values, "exclusions": job.spec.exclusions}
        return await self._define_again(asked, new, values)

    def _sealer(self, tenant_id: bytes, job_id: bytes, body: Body | None = None) -> Sealer:
        inline_max = self._payloads.inline_max
        return Sealer(self._vault, tenant_id, job_id, inline_max=inline_max, body=body)

    def _job_id(self, tenant_id: bytes, key: object, idempotency_key: str) -> bytes:
        if isinstance(key, str):
            return job_id_of_key(tenant_id, "key", key)
        if idempotency_key:
            return job_id_of_key(tenant_id, "request", idempotency_key)
        return self._new_id(16)

    # ------------------------------------------------------------ commands on a job

    async def revise(self, asked: Asked, patch: Mapping[str, Any], payload: bytes | None) -> Done:
        """Change a job by a merge patch."""
        tenant_id = asked.caller.tenant_id
        known = await self._calendars.claimed(tenant_id, asked.job_id, patch.get("exclude"))
        judged = await judge_patch(self._log, self._secrets, asked, patch)

        def verb(
            job: s.JobState | None, runs: tuple[OpenRun, ...], by: decide.By
        ) -> decide.Outcome:
            if job is None:
                return _ABSENT
            old = job.facts.spec
            if isinstance(job, s.Cancelled):
                # Its refusal comes before what could be said of the patch.
                return decide.revise(job, runs, old, self._zone_data, by)
            values = self._definitions.change(patch, payload, old, by.at, tenant_id).values
            refused = refused_for_missing(sealing.targets_in(values), judged)
            if refused is not None:
                raise refused
            if "exclude" in values:
                mine = {one.name: one for one in old.exclusions}
                values = {**values, "exclusions": resolved(values["exclude"], mine | known)}
            spec = self._sealer(tenant_id, asked.job_id, writing.body).over(values, old)
            if spec.slots != old.slots:
                refuse_unusable(spec, by.at)
            spec = choices.fit(asked.job_id, spec, old, by.at)
            return writing.named(decide.revise(job, runs, spec, self._zone_data, by))

        choices, writing = Choices(self._placer), Writing(self._payloads)
        accepted = await writing.around(lambda: choices.around(lambda: self._command(asked, verb)))
        await self._calendars.settle((accepted.job,))
        more = warnings(sealing.targets_of(accepted.job.facts.spec), judged)
        done = self._answers.defined(accepted.job, accepted, created=False, more=more)
        done.reply.in_flight = outlook.in_flight(accepted.runs)
        return done

    async def cancel(self, asked: Asked, reason: str) -> Done:
        """Cancel a job for ever; a repeat is answered as the first was."""
        accepted = await self._command(asked, decide.cancel, reason)
        job = accepted.job
        assert isinstance(job, s.Cancelled)
        at = msgspec.structs.replace(accepted, at=job.at, version=job.facts.version)
        answer = self._answers.reply(job, at)
        answer.in_flight = [text(RUN, run) for run in job.in_flight]
        return Done(answer)

    async def pause(self, asked: Asked, reason: str, until: int = 0) -> Done:
        """Pause a job, for good or until an instant (ms); attempts in flight go on."""

        def verb(
            job: s.JobState | None, runs: tuple[OpenRun, ...], by: decide.By
        ) -> decide.Outcome:
            return decide.pause(job, runs, by, until=until)

        accepted = await self._command(asked, verb, reason)
        if accepted.replayed:
            return await self._answers.replay(accepted)
        answer = self._answers.reply(accepted.job, accepted)
        answer.in_flight = outlook.in_flight(accepted.runs)
        return Done(answer)

    async def resume(self, asked: Asked, reason: str, catch_up: str = USUAL) -> Done:
        """Resume a job; `catch_up` says what of the slots of the pause fires."""

        def verb(
            job: s.JobState | None, runs: tuple[OpenRun, ...], by: decide.By
        ) -> decide.Outcome:
            return decide.resume(job, runs, by, catch_up=catch_up)

        accepted = await self._command(asked, verb, reason)
        if accepted.replayed:
            return await self._answers.replay(accepted)
        return Done(self._answers.reply(accepted.job, accepted))

    async def trigger(self, asked: Asked, reason: str, *, allow_overlap: bool) -> Done:
        """Ask for a run now, beside the schedule."""
        command = asked.command
        salt = command.command_id if command else self._new_id(16)

        def verb(
            job: s.JobState | None, runs: tuple[OpenRun, ...], by: decide.By
        ) -> decide.Outcome:
            return decide.trigger(job, runs, salt, by, allow_overlap=allow_overlap)

        accepted = await self._command(asked, verb, reason)
        if accepted.replayed:
            return await self._answers.replay(accepted)
        answer = self._answers.reply(
            await past.one_time_then(self._log, accepted.job, accepted.at), accepted
        )
        facts = accepted.job.facts
        answer.run_id = text(RUN, run_id(facts.job_id, facts.life, accepted.at, MANUAL, salt))
        return Done(answer)

    async def backfill(self, asked: Asked, reason: str, wish: Range, *, dry_run: bool) -> Done:
        """Run past slots, with the schedules that were in force then."""
        for _ in range(BACKFILL_TRIES):
            known = await look(self._log, asked.job_id, asked.caller.tenant_id, wish)
            if isinstance(known, ScheduleBreach):
                raise told(known)
            verb = partial(decide_backfill, known, wish, self._zone_data)
            if dry_run:
                return await self._would_backfill(known, verb)
            try:
                accepted = await self._command(asked, verb, reason)
            except Problem as problem:
                if problem.code != MOVED:
                    raise
                continue
            if accepted.replayed:
                return await self._answers.replay(accepted)
            job_id, before = asked.job_id, accepted.version - 1
            (event,) = await self._log.events(job_id, job_id, before, 1)
            return await self._answers.backfilled(accepted.job, accepted, event)
        raise Unavailable("the job changes faster than its past can be read")

    async def _would_backfill(self, known: Known | None, verb: Verb) -> Done:
        """Answer as a backfill would be, from what was read: nothing is written."""
        at = self._now()
        job, runs = (known.job, known.runs) if known else (None, ())
        found = requested(verb(job, runs, decide.By(at)))
        if isinstance(found, Rejected):
            raise Problem(found.code, found.detail)
        assert job is not None
        answer = reply(await past.one_time_then(self._log, job, at), job.facts.version, at)
        answer.backfill = backfilled(found, dry_run=True)
        return Done(answer)

    async def _command(
        self, asked: Asked, verb: Verb, reason: str = "", *, mine: bool = True
    ) -> Accepted:
        """Run `verb` under the lock, for the job's tenant only and at the version asked for."""
        command = asked.command
        tenant_id, wanted = asked.caller.tenant_id, asked.if_version
        failed: list[Exception] = []

        def under_lock(
            job: s.JobState | None, runs: tuple[OpenRun, ...], at: int
        ) -> decide.Outcome:
            if (mine and job is None) or (job is not None and job.facts.tenant_id != tenant_id):
                return _ABSENT
            if wanted and job is not None and job.facts.version != wanted:
                return Rejected("precondition", f"the job is at version {job.facts.version}")
            try:
                return verb(job, runs, decide.By(at, asked.caller.kid, reason, command))
            except (Problem, KeyGone, ScheduleBreach, Unavailable, Unplaced, Unwritten) as error:
                # Nothing is raised through the log: its transaction ends as for any refusal.
                failed.append(error)
                return Rejected("invalid", str(error))

        identity, digest = (command.command_id, command.body_hash) if command else (b"", b"")
        outcome = await self._log.command(asked.job_id, identity, digest, under_lock)
        if failed and isinstance(outcome, Rejected):
            raise told(failed[-1])
        return accepted_of(outcome)
