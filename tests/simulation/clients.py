"""Clients of the write API in virtual time: the product's own handlers, and what became of calls.

A call may be cut: what it asked for may have happened or not. A client sends it again then, with
the key of the first time, and gives up after a few tries.
"""

import asyncio
import json
from collections.abc import Awaitable, Coroutine, Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec import UNSET

from commandside.command_port import Answer, Decide
from commandside.commands import backfill as past
from commandside.commands.asked import Asked, Done, Sent
from commandside.commands.calendars import TenantCalendars
from commandside.commands.jobs import Jobs
from commandside.commands.payloads import Payloads
from commandside.commands.prompt import PromptLog
from commandside.commands.redrive import OneAsked, Redrives
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions.definition import Bounds, Definitions
from commandside.definitions.reading import member, read_job, read_object
from commandside.firing.hand_off import SelfHandOff
from commandside.ports import Unavailable
from domain.envelope import Decision
from domain.ids import JOB, RUN, parse, text
from domain.opaque import POSITION, Seal
from domain.problem import Problem
from domain.schedule import zone
from domain.schedule.once import read_instant
from domain.tenant import SCOPES, Caller
from infra.ics import read_ics
from infra.memory.calendars import MemoryCalendars
from infra.memory.command_log import MemoryCommandLog
from infra.memory.history import MemoryRuns
from infra.memory.payloads import MemoryPayloadList
from infra.memory.ready_queue import MemoryReadyQueue
from infra.memory.secret_store import MemorySecretStore
from infra.memory.vault import MemoryVault
from projections.dead_letters import DeadFilter
from tests.checker.inputs import FAIL, INFO, OK, Operation
from tests.simulation.nodes import Faults
from tests.simulation.scenario import Deed, NewJob
from tests.simulation.world import World

TRIES: Final = 6
AGAIN_MS: Final = 700
"""A call that was cut is sent again after this."""
ANSWER_US: Final = 4_000
"""A call's way to the API, and the answer's way back."""
KEYED: Final = frozenset({"define", "pause", "resume", "trigger", "backfill", "redrive"})
TENANTS: Final = 4


class _Commands(MemoryCommandLog):
    """The log as the API reaches it: a transaction may fail before or after its commit."""

    def __init__(self, world: World) -> None:
        super().__init__(world.log)
        self._trouble = world.trouble("command")

    async def define(self, decision: Decision) -> Answer:
        return await self._tried_once("define", super().define(decision))

    async def command(
        self, job_id: bytes, command_id: bytes, body_hash: bytes, decide: Decide
    ) -> Answer:
        question = super().command(job_id, command_id, body_hash, decide)
        return await self._tried_once("command", question)

    async def _tried_once(self, name: str, question: Coroutine[Any, Any, Answer]) -> Answer:
        after = self._trouble(name)
        if after is False:
            question.close()
            raise Unavailable("the transaction did not arrive")
        answer = await question
        if after:
            raise Unavailable("the outcome of the transaction is unknown")
        return answer


class Clients:
    """Everybody who calls the API, and the log of their calls (C)."""

    def __init__(self, world: World, jobs: Sequence[NewJob]) -> None:
        self.operations: list[Operation] = []
        self.ids: dict[int, bytes] = {}
        """Job id of each definition that was answered."""
        self.let_in: list[str] = []
        """Commands on another tenant's job that were not refused."""
        self._world, self._jobs = world, jobs
        self._loop = asyncio.new_event_loop()
        dice = world.dice("api")
        queue = MemoryReadyQueue(world.broker, produces=True, consumes=False)
        log = PromptLog(_Commands(world), SelfHandOff(queue, world.log.shards, world.figures))
        now, positions = world.database_ms, Seal(bytes(32), POSITION)
        calendars = TenantCalendars(MemoryCalendars(now), log, read_ics, now)
        self._api = Jobs(
            log,
            MemoryVault(),
            SecretKeeper(MemorySecretStore(now)),
            Definitions(Bounds(min_interval_s=1)),
            calendars,
            Payloads(world.payloads, MemoryPayloadList(now), Faults(world.hits, world.crashes)),
            now=now,
            new_id=dice.randbytes,
            positions=positions,
            zone_data=zone.VERSION,
        )
        self._letters = MemoryRuns(world.histories)
        self._redrives = Redrives(log, self._letters, now=now, positions=positions)

    def close(self) -> None:
        """End the loop that the API's handlers ran in."""
        self._loop.close()

    # ---------------------------------------------------------------- calls

    def define(self, numbers: Sequence[int]) -> list[int]:
        """Define jobs in one request; return those whose answer did not come."""
        news = [self._jobs[number] for number in numbers]
        lots: dict[int, list[int]] = {}
        for number, new in zip(numbers, news, strict=True):
            lots.setdefault(new.tenant, []).append(number)
        cut: list[int] = []
        for tenant, lot in lots.items():
            sent = [_sent(self._jobs[number]) for number in lot]
            invoked_us = self._world.clock.mono_us() - ANSWER_US
            answers = self._run(self._api.define_all(caller(tenant), sent, brief=len(lot) > 1))
            for number, what, answer in zip(lot, sent, answers, strict=True):
                deed = Deed(0, "define", number)
                if self._note(deed, what.raw, invoked_us, answer, what.idempotency_key) == INFO:
                    cut.append(number)
        return cut

    def do(self, deed: Deed, key: str) -> bool:
        """Carry out a deed; False where its answer did not come and it should be sent again."""
        job_id = self.ids.get(deed.job)
        if deed.action == "define":
            return not self.define([deed.job])
        if job_id is None:
            return True
        if deed.action == "foreign":
            return self._intrude(deed, job_id)
        raw = json.dumps(deed.body).encode() if deed.body else b""
        tenant = self._jobs[deed.job].tenant
        invoked_us = self._world.clock.mono_us() - ANSWER_US
        asked = Asked(caller(tenant), job_id, deed.action, raw, key if deed.action in KEYED else "")
        try:
            answer: Any = self._run(self._verb(deed, asked, raw))
        except (Problem, Unavailable) as error:
            answer = error
        if answer is None:
            return True
        return self._note(deed, raw, invoked_us, answer, asked.idempotency_key) != INFO

    def _intrude(self, deed: Deed, job_id: bytes) -> bool:
        """Ask as another tenant, who must be told that there is no such job."""
        stranger = caller((self._jobs[deed.job].tenant + 1) % TENANTS)
        for action in ("pause", "trigger", "revise", "cancel"):
            body = {"timeout_s": 7} if action == "revise" else {}
            raw = json.dumps(body).encode() if body else b""
            asked = Asked(stranger, job_id, action, raw)
            try:
                self._run(self._verb(Deed(0, action, deed.job, body), asked, raw))
            except Unavailable:
                continue
            except Problem as problem:
                if problem.code == "absent":
                    continue
            self.let_in.append(f"{action} of {job_id.hex()}")
        return True

    def _verb(self, deed: Deed, asked: Asked, raw: bytes) -> Awaitable[Any]:
        body, api = deed.body, self._api
        match deed.action:
            case "revise":
                return api.revise(asked, *read_job(raw))
            case "cancel":
                return api.cancel(asked, "")
            case "pause":
                return api.pause(asked, "", read_instant(body["until"]) if body else 0)
            case "resume":
                return api.resume(asked, "", body.get("catch_up", ""))
            case "trigger":
                return api.trigger(asked, "", allow_overlap=bool(body))
            case "backfill":
                wish, reason, dry_run = past.read(read_object(raw))
                return api.backfill(asked, reason, wish, dry_run=dry_run)
            case _:
                return self._redrive(asked)

    async def _redrive(self, asked: Asked) -> Any:
        tenant_id = asked.caller.tenant_id
        rows = self._letters.dead_rows(tenant_id, DeadFilter(asked.job_id), None, 1)
        if not rows:
            return None
        run = text(RUN, rows[0].run_id)
        key = asked.idempotency_key
        return await self._redrives.one(OneAsked(asked.caller, run, idempotency_key=key))

    def _run(self, question: Awaitable[Any]) -> Any:
        async def ask() -> Any:
            return await question

        return self._loop.run_until_complete(ask())

    # ---------------------------------------------------------------- what became of them

    def _note(self, deed: Deed, raw: bytes, invoked_us: int, answer: Any, key: str) -> str:
        new = self._jobs[deed.job]
        outcome, status = OK, 200
        if isinstance(answer, Unavailable):
            outcome, status = INFO, 503
        elif isinstance(answer, Problem):
            outcome, status = FAIL, answer.status
        elif isinstance(answer, BaseException):
            raise answer
        reply = answer.reply if isinstance(answer, Done) else None
        if reply is not None and deed.action == "define":
            job_id = parse(JOB, reply.job_id)
            assert job_id is not None
            self.ids[deed.job] = job_id
        named = reply.in_flight if reply is not None else UNSET
        self.operations.append(
            Operation(
                f"client {new.tenant}",
                tenant_id(new.tenant),
                deed.action,
                invoked_us,
                self._world.clock.mono_us() + ANSWER_US,
                outcome,  # type: ignore[arg-type]  # one of the three words
                self.ids.get(deed.job, b""),
                status,
                key,
                sha256(raw).digest(),
                _payload(deed, raw),
                reply.version if reply is not None else 0,
                in_flight=None
                if named is UNSET
                else tuple(run for run in (parse(RUN, name) for name in named) if run),
            )
        )
        return outcome


def tenant_id(number: int) -> bytes:
    """Return the id of a tenant."""
    return b"tenant" + bytes(9) + bytes([number])


def caller(tenant: int) -> Caller:
    """Return a client of a tenant, who may do everything."""
    return Caller(tenant_id(tenant), f"key {tenant}", SCOPES)


def _sent(new: NewJob) -> Sent:
    raw = json.dumps(new.body).encode()
    body, payload = read_job(raw)
    return Sent(body, payload, raw, new.key)


def _payload(deed: Deed, raw: bytes) -> bytes | None:
    """Return the hash of the body that fires carry after a definition or an edit that says so."""
    if deed.action not in ("define", "revise"):
        return None
    body = json.loads(raw)
    if "payload" in body:
        return sha256(member(raw, "payload")).digest()
    return sha256(b"").digest() if deed.action == "define" else None
