"""What only real connections show: races, locks, lost sockets, and the bytes in the tables."""

import threading
import time
from collections.abc import Iterator

import psycopg
import psycopg.conninfo
import pytest

from commandside.ports import (
    SESSION_MS,
    Append,
    AppendReply,
    Defer,
    DoneReply,
    Failed,
    Lease,
    LeaseReply,
    Published,
    ReadBack,
    ReadBackReply,
    Ref,
    Renew,
    Want,
)
from domain import catalogue
from domain.run import decide
from domain.run.events import Leased
from domain.sharding import shard_of
from infra.postgres.append import LogCorrupt
from infra.postgres.due_index import PostgresDueIndex
from tests.contracts import jobs
from tests.contracts.fire_log import Desk
from tests.integration.log_bench import (
    PATIENCE_S,
    SHARDS,
    STRIPES,
    Bench,
    Proxy,
    cut,
    hex_of,
    lease_of,
    locked,
    one,
    until,
    waits_for_a_lock,
)


@pytest.fixture
def bench(log_database: str) -> Iterator[Bench]:
    bench = Bench(log_database)
    yield bench
    bench.log.close()


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench)


@pytest.fixture
def admin(log_database: str) -> Iterator[psycopg.Connection]:
    """A connection beside the log's own."""
    with psycopg.connect(log_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def due_index(log_database: str) -> Iterator[PostgresDueIndex]:
    index = PostgresDueIndex(log_database, SHARDS)
    yield index
    index.close()


# -------------------------------------------------------------------- races


def _race(conninfo: str, session: bytes, wants: list[Want], start: threading.Barrier) -> set[bytes]:
    """Lease whatever can be leased of `wants`, and return it."""
    bench = Bench(conninfo)
    desk = Desk(bench)
    desk.session = session
    desk.begin()
    todo: list[list[list[Want]]] = [[] for _ in range(STRIPES)]
    for stripe, batches in enumerate(todo):
        mine = [w for w in wants if shard_of(w.job_id, SHARDS) % STRIPES == stripe]
        batches += [mine[n : n + 250] for n in range(0, len(mine), 250)]
        bench.until_idle(stripe)
    expires_at, won = desk.now() + 60_000, set()
    start.wait(PATIENCE_S)
    deadline, waiting = time.monotonic() + PATIENCE_S, 0
    while waiting or any(todo):
        assert time.monotonic() < deadline
        for stripe, batches in enumerate(todo):
            if batches and bench.log.idle(stripe):
                bench.log.submit(stripe, Lease(session, session[8:], batches.pop(), expires_at))
                waiting += 1
        for reply in bench.log.poll():
            assert isinstance(reply, LeaseReply), reply
            assert not reply.session_ended
            won |= {granted.run.facts.run_id for granted in reply.granted}
            waiting -= 1
        bench.rest()
    bench.log.close()
    return won


def test_two_dispatchers_race_for_ten_thousand_runs_and_each_is_leased_once(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    now, wants = desk.now(), []
    spec = jobs.spec(jobs.once(now))
    for shard in range(40):
        decisions = [jobs.define(jobs.job_id(shard, SHARDS), spec, now) for _ in range(250)]
        wants += [jobs.want(jobs.ready_run(decision)) for decision in decisions]
        request = Append(decisions, now + 60_000)
        assert desk.ask(shard % STRIPES, request, AppendReply).refused == ()
    start, won = threading.Barrier(2), [set[bytes](), set[bytes]()]

    def run(n: int) -> None:
        won[n] = _race(log_database, bytes([n + 1]) * 16, wants, start)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert won[0].isdisjoint(won[1])
    assert won[0] | won[1] == {want.run_id for want in wants}
    assert min(map(len, won)) > 0, "there was no race"
    leased = "select count(*) from events where name = 'run.leased.v1' and version = 2"
    assert one(admin, leased) == 10_000


def test_a_lease_sees_what_was_committed_while_it_waited_for_its_lock(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    with locked(log_database) as holder:
        holder.execute("update due_index set version = 2 where run_id = %s", (hex_of(run),))
        bench.send(lease_of(desk, run))
        until(lambda: waits_for_a_lock(admin), "the lease does not wait")
    reply = bench.reply()
    assert isinstance(reply, LeaseReply)
    assert list(reply.gone) == [run.facts.run_id]


def test_an_append_sees_what_was_committed_while_it_waited_for_its_lock(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    decision = jobs.succeeded(desk.leased(run), desk.now())
    with locked(log_database) as holder:
        holder.execute("update job_heads set version = 2")
        bench.send(Append([decision], desk.now() + 10_000))
        until(lambda: waits_for_a_lock(admin), "the append does not wait")
    reply = bench.reply()
    assert isinstance(reply, AppendReply)
    assert reply.refused == (0,)


def test_a_mark_waits_for_the_lock_of_its_shard(
    log_database: str, desk: Desk, admin: psycopg.Connection, due_index: PostgresDueIndex
) -> None:
    """A lease writes the row where it found it: a mark beside it would move the row away."""
    desk.due_job()
    chunks = due_index.window({0: 0}, 0, desk.now(), 10)
    published = [Published(chunk, Ref("t", 0, 0)) for chunk in chunks]
    marked: list[int] = []
    with locked(log_database):
        thread = threading.Thread(target=lambda: marked.append(due_index.mark(published)))
        thread.start()
        until(lambda: waits_for_a_lock(admin), "the mark does not wait")
        assert one(admin, "select handed_off_at from due_index") is None
    thread.join(PATIENCE_S)
    assert marked == [1]


def test_a_row_that_is_written_without_its_lock_is_an_alarm(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    with psycopg.connect(log_database) as careless:
        careless.execute("update due_index set handed_off_at = 1")
        bench.send(lease_of(desk, run))
        waits = "select count(*) from pg_locks where not granted and locktype = 'transactionid'"
        until(lambda: one(admin, waits) == 1, "the lease does not wait")
    reply = bench.reply()
    assert isinstance(reply, Failed)
    assert not reply.unknown
    with pytest.raises(LogCorrupt):
        bench.log.poll()


# -------------------------------------------------------------------- sessions


def test_a_session_that_is_not_renewed_is_reaped_and_its_leases_lapse(
    desk: Desk, admin: psycopg.Connection, due_index: PostgresDueIndex
) -> None:
    run = desk.due_job()
    desk.begin()
    granted = desk.leased(run)
    assert due_index.reap() == 0
    assert due_index.lapsed(range(SHARDS), 10) == []
    admin.execute("update sessions set until = until - %s", (2 * SESSION_MS,))
    assert due_index.reap() == 1
    ((standing, lapsed),) = due_index.lapsed(range(SHARDS), 10)
    assert lapsed == granted.run
    assert not desk.ask(STRIPES, Renew(desk.session), DoneReply).ok
    now = desk.now()
    lost = decide.report(standing.job, lapsed, lapsed.facts.fence, decide.LOST, now, alone=True)
    assert lost is not None
    assert due_index.append([lost], now + 5_000) == [True]
    assert due_index.append([lost], now + 5_000) == [False]
    assert desk.run(run.facts.job_id).facts.lost == 1


def test_a_session_past_its_end_that_nobody_reaped_is_renewed(
    desk: Desk, admin: psycopg.Connection, due_index: PostgresDueIndex
) -> None:
    desk.begin()
    admin.execute("update sessions set until = until - %s", (2 * SESSION_MS,))
    assert desk.ask(STRIPES, Renew(desk.session), DoneReply).ok
    assert due_index.reap() == 0


def test_a_session_with_less_than_two_seconds_left_takes_no_lease(
    desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    admin.execute("update sessions set until = until - %s", (SESSION_MS - 1_900,))
    assert desk.lease(jobs.want(run)).session_ended
    desk.ask(STRIPES, Renew(desk.session), DoneReply)
    desk.leased(run)


def test_a_lease_past_its_own_end_lapses_while_its_session_lives(
    desk: Desk, admin: psycopg.Connection, due_index: PostgresDueIndex
) -> None:
    run = desk.due_job()
    desk.begin()
    desk.leased(run)
    admin.execute("update due_index set until = tocsin_now() - 1")
    ((_, lapsed),) = due_index.lapsed(range(SHARDS), 10)
    assert lapsed.facts.run_id == run.facts.run_id


# -------------------------------------------------------------------- expiry and read-back


def test_a_lease_that_gets_its_lock_after_its_expiry_refuses_itself(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    request = lease_of(desk, run, expires_in_ms=300)
    with locked(log_database):
        bench.send(request)
        until(lambda: waits_for_a_lock(admin), "the lease does not wait")
        expired = f"select tocsin_now() > {request.expires_at}"
        until(lambda: one(admin, expired) is True, "time stands still")
    reply = bench.reply()
    assert isinstance(reply, Failed)
    assert not reply.unknown
    assert desk.run(run.facts.job_id) == run


def test_a_read_back_waits_for_the_transaction_it_asks_about(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    with locked(log_database) as holder:
        holder.execute(
            "update due_index set phase = 1, version = 2, fence = 2, owner = %s, nonce = %s",
            (desk.session.hex(), desk.nonce),
        )
        bench.send(ReadBack(desk.nonce, [jobs.want(run)], desk.now() - 1))
        until(lambda: waits_for_a_lock(admin), "the read-back does not wait")
    reply = bench.reply()
    assert isinstance(reply, ReadBackReply)
    assert [granted.run.facts.run_id for granted in reply.ours] == [run.facts.run_id]


def test_a_lock_that_is_not_to_be_had_fails_the_request_for_certain(
    log_database: str, bench: Bench, desk: Desk
) -> None:
    run = desk.due_job()
    desk.begin()
    with locked(log_database):
        bench.send(lease_of(desk, run))
        reply = bench.reply()
    assert isinstance(reply, Failed)
    assert not reply.unknown
    assert reply.detail.startswith("55P03")
    desk.leased(run)


def test_a_connection_killed_in_mid_flight_leaves_an_unknown_outcome_that_is_read_back(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    with locked(log_database):
        bench.send(lease_of(desk, run))
        until(lambda: waits_for_a_lock(admin), "the lease does not wait")
        cut(admin)
        reply = bench.reply()
    assert isinstance(reply, Failed)
    assert reply.unknown
    back = ReadBack(desk.nonce, [jobs.want(run)], desk.now() - 1)
    assert desk.ask(0, back, ReadBackReply).ours == ()
    desk.leased(run)
    assert len(desk.ask(0, back, ReadBackReply).ours) == 1


def test_an_idle_connection_that_is_lost_comes_back_by_itself(
    bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    cut(admin)
    until(lambda: bench.log.poll() == [] and not bench.log.idle(0), "nobody noticed")
    assert bench.log.trouble()
    assert desk.run(run.facts.job_id) == run
    assert bench.log.trouble() == []


def test_a_reply_that_does_not_come_is_given_up_after_its_deadline(
    log_database: str, bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    with locked(log_database):
        bench.send(lease_of(desk, run))
        until(lambda: waits_for_a_lock(admin), "the lease does not wait")
        bench.ahead_us = 60_000_000
        reply = bench.reply()
    assert isinstance(reply, Failed)
    assert reply.unknown


def test_a_commit_whose_reply_was_lost_is_read_back_as_ones_own(
    log_database: str, desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    desk.begin()
    proxy = Proxy(log_database)
    far = Bench(proxy.conninfo)
    try:
        far.until_idle(0)
        proxy.deaf = True
        far.send(lease_of(desk, run))
        until(lambda: one(admin, "select phase from due_index") == 1, "nothing is committed")
        proxy.cut()
        reply = far.reply()
        assert isinstance(reply, Failed)
        assert reply.unknown
        proxy.deaf = False
        back = ReadBack(desk.nonce, [jobs.want(run)], desk.now() - 1)
        far.send(back)
        again = far.reply()
    finally:
        far.log.close()
        proxy.close()
    assert isinstance(again, ReadBackReply)
    assert [granted.run.facts.run_id for granted in again.ours] == [run.facts.run_id]


# -------------------------------------------------------------------- bugs, and bytes


def test_a_version_that_exists_already_is_an_alarm_and_nothing_is_committed(
    bench: Bench, desk: Desk, admin: psycopg.Connection
) -> None:
    run, other = desk.due_job(), desk.due_job()
    desk.begin()
    admin.execute(
        "insert into events select stream_id, 2, shard, 999999, name, data from events"
        " where stream_id = %s",
        (hex_of(run),),
    )
    wants = [jobs.want(run), jobs.want(other)]
    bench.send(Lease(desk.session, desk.nonce, wants, desk.now() + 5_000))
    reply = bench.reply()
    assert isinstance(reply, Failed)
    assert not reply.unknown
    with pytest.raises(LogCorrupt):
        bench.log.poll()
    assert desk.run(other.facts.job_id) == other


@pytest.mark.parametrize("before", [0, 126, 127, 1_000])
def test_the_database_writes_a_lease_as_the_domain_does(
    desk: Desk, admin: psycopg.Connection, before: int
) -> None:
    run = desk.due_job()
    admin.execute("update due_index set attempt = %s", (before,))
    desk.begin()
    granted = desk.leased(run)
    data = one(admin, "select data from events where stream_id = %s and version = 2", hex_of(run))
    event = Leased(desk.session, desk.nonce, granted.run.leased_at, granted.run.until, before + 1)
    assert isinstance(data, bytes)
    assert catalogue.decode("run.leased.v1", data) == event
    if before < 127:
        assert data == catalogue.encode(event)


def test_a_hand_off_is_forgotten_when_its_run_is_deferred(
    desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    admin.execute("update due_index set handed_off_at = 1, handed_off_topic = 't', hand_offs = 1")
    later = desk.now() + 60_000
    desk.ask(0, Defer([(run.facts.run_id, 1, later)]), DoneReply)
    row = admin.execute("select wake_at, handed_off_at, handed_off_topic from due_index").fetchone()
    assert row == (later, None, None)


def test_a_deferral_of_a_run_that_moved_on_does_nothing(
    desk: Desk, admin: psycopg.Connection
) -> None:
    run = desk.due_job()
    before = one(admin, "select wake_at from due_index")
    desk.ask(0, Defer([(run.facts.run_id, 2, desk.now() + 60_000)]), DoneReply)
    assert one(admin, "select wake_at from due_index") == before


def test_a_leased_row_stays_in_its_page_so_that_no_index_is_written(
    desk: Desk, admin: psycopg.Connection
) -> None:
    runs = [desk.due_job() for _ in range(100)]
    desk.begin()
    before = _pages(admin)
    desk.lease(*map(jobs.want, runs))
    assert len(before) == 100
    assert _pages(admin) == before


def _pages(admin: psycopg.Connection) -> dict[str, int]:
    query = "select run_id::text, (ctid::text::point)[0]::int from due_index"
    return dict(admin.execute(query.encode()).fetchall())
