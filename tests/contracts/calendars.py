"""What every store of calendars does, in memory or on Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from commandside.calendar_port import Calendar, Calendars, Put
from domain.envelope import Rejected
from domain.schedule.exclusion import Exclusion, packed

TENANT, OTHER = b"t" * 16, b"u" * 16
JOB, SECOND_JOB = bytes(15) + b"\x01", bytes(15) + b"\x02"
NAME: Final = "holidays"
Answer = TypeVar("Answer")


class Bench(Protocol):
    """A store under test: runs one scenario."""

    def run(self, scenario: Callable[[Calendars], Awaitable[Answer]]) -> Answer: ...


def new(name: str = NAME, *days: int) -> Calendar:
    """Return a calendar of days."""
    ranges = packed([(day * 86_400, day * 86_400 + 86_400) for day in days])
    return Calendar(Exclusion(name, 0, "UTC", ranges), 0, 0, "k_1")


async def put(store: Calendars, *days: int, name: str = NAME, tenant: bytes = TENANT) -> Put:
    """Put a calendar, which must succeed."""
    made = await store.put(tenant, new(name, *days), 0)
    assert isinstance(made, Put), made
    return made


class CalendarsContract:
    """Subclasses give a fixture `bench`."""

    def test_versions_count_up_and_are_kept(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            first, second = await put(store, 1), await put(store, 2)
            assert (first.created, second.created) == (True, False)
            assert [p.calendar.exclusion.version for p in (first, second)] == [1, 2]
            assert await store.find(TENANT, NAME) == second.calendar
            assert await store.find(TENANT, NAME, 1) == first.calendar
            assert await store.find(TENANT, NAME, 3) is None
            assert first.calendar.actor == "k_1"
            assert first.calendar.at > 0

        bench.run(scenario)

    def test_the_same_content_is_no_new_version(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            first, again = await put(store, 1), await put(store, 1)
            assert not again.changed
            assert again.calendar == first.calendar

        bench.run(scenario)

    def test_a_version_that_is_not_the_current_one_is_refused(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            missing = await store.put(TENANT, new(NAME, 1), 1)
            assert isinstance(missing, Rejected)
            assert await store.find(TENANT, NAME) is None
            await put(store, 1)
            stale = await store.put(TENANT, new(NAME, 2), 9)
            assert isinstance(stale, Rejected)
            assert stale.code == "precondition"
            found = await store.find(TENANT, NAME)
            assert found is not None
            assert found.exclusion.version == 1
            assert isinstance(await store.put(TENANT, new(NAME, 2), 1), Put)

        bench.run(scenario)

    def test_another_tenants_calendars_are_not_there(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            await put(store, 1)
            assert await store.find(OTHER, NAME) is None
            assert await store.page(OTHER, "", 10) == []
            assert await store.current(OTHER, [NAME]) == {}
            assert await store.claim(OTHER, [(JOB, (NAME,))], 5) == {}
            assert (await put(store, 3, tenant=OTHER)).calendar.exclusion.version == 1

        bench.run(scenario)

    def test_pages_go_by_name(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            for name in ("b", "a", "c"):
                await put(store, 1, name=name)
            assert [c.exclusion.name for c in await store.page(TENANT, "", 2)] == ["a", "b"]
            assert [c.exclusion.name for c in await store.page(TENANT, "b", 2)] == ["c"]

        bench.run(scenario)

    def test_a_claim_returns_the_current_versions_and_is_behind_until_applied(
        self, bench: Bench
    ) -> None:
        async def scenario(store: Calendars) -> None:
            await put(store, 1)
            await put(store, 2)
            found = await store.claim(TENANT, [(JOB, (NAME, "unknown"))], 5)
            assert {name: one.version for name, one in found.items()} == {NAME: 2}
            (use,) = await store.behind(b"", 10)
            assert (use.tenant_id, use.name, use.job_id, use.at) == (TENANT, NAME, JOB, 5)
            assert await store.applied(TENANT, [(JOB, NAME, 2)]) == []
            assert await store.behind(b"", 10) == []
            assert await store.count(TENANT, NAME) == 1

        bench.run(scenario)

    def test_an_edit_puts_every_use_behind(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            await put(store, 1)
            await put(store, 1, name="other")
            await store.claim(TENANT, [(JOB, (NAME,)), (SECOND_JOB, (NAME, "other"))], 5)
            uses = [(JOB, NAME, 1), (SECOND_JOB, NAME, 1), (SECOND_JOB, "other", 1)]
            assert await store.applied(TENANT, uses) == []
            await put(store, 2)
            late = await store.behind(b"", 10)
            assert [(use.job_id, use.name) for use in late] == [(JOB, NAME), (SECOND_JOB, NAME)]
            assert [u.job_id for u in await store.behind(JOB, 10, TENANT, NAME)] == [SECOND_JOB]
            assert await store.behind(b"", 10, TENANT, "other") == []
            # A job that was written with the version before says so, and is still behind.
            (use,) = await store.applied(TENANT, [(JOB, NAME, 1)])
            assert use.job_id == JOB
            assert await store.applied(TENANT, [(JOB, NAME, 2)]) == []

        bench.run(scenario)

    def test_a_calendar_that_is_used_is_not_deleted(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            absent = await store.remove(TENANT, NAME, 0)
            assert isinstance(absent, Rejected)
            assert absent.code == "absent"
            await put(store, 1)
            await store.claim(TENANT, [(JOB, (NAME,)), (SECOND_JOB, (NAME,))], 5)
            used = await store.remove(TENANT, NAME, 0)
            assert isinstance(used, Rejected)
            assert used.code == "in_use"
            assert "2 jobs" in used.detail
            for use in await store.users(TENANT, NAME, 10):
                await store.drop(use)
            stale = await store.remove(TENANT, NAME, 7)
            assert isinstance(stale, Rejected)
            assert await store.remove(TENANT, NAME, 1) is None
            assert await store.find(TENANT, NAME) is None
            assert await store.page(TENANT, "", 9) == []
            assert await store.claim(TENANT, [(JOB, (NAME,))], 6) == {}
            again = await put(store, 1)
            assert (again.created, again.calendar.exclusion.version) == (True, 2)

        bench.run(scenario)

    def test_a_use_that_was_claimed_again_is_not_dropped(self, bench: Bench) -> None:
        async def scenario(store: Calendars) -> None:
            await put(store, 1)
            await store.claim(TENANT, [(JOB, (NAME,))], 5)
            (use,) = await store.users(TENANT, NAME, 10)
            await store.claim(TENANT, [(JOB, (NAME,))], 6)
            await store.drop(use)
            assert await store.count(TENANT, NAME) == 1

        bench.run(scenario)

    def test_edits_and_claims_side_by_side_leave_no_use_that_nobody_sees(
        self, bench: Bench
    ) -> None:
        async def scenario(store: Calendars) -> None:
            await put(store, 0)
            job_ids = [n.to_bytes(16, "big") for n in range(1, 41)]

            async def define(job_id: bytes) -> tuple[bytes, int]:
                found = await store.claim(TENANT, [(job_id, (NAME,))], 5)
                await store.applied(TENANT, [(job_id, NAME, found[NAME].version)])
                return job_id, found[NAME].version

            work: list[Awaitable[tuple[bytes, int] | Put]] = []
            for n, job_id in enumerate(job_ids):
                work += [define(job_id), put(store, n + 1)]
            done = await asyncio.gather(*work)
            current = await store.find(TENANT, NAME)
            assert current is not None
            late = {use.job_id for use in await store.behind(b"", 100)}
            old = {
                one[0]
                for one in done
                if isinstance(one, tuple) and one[1] < current.exclusion.version
            }
            assert late == old

        bench.run(scenario)
