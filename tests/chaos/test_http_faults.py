"""What a target does to one call, seen on the wire: each ends once, in time, and bounded."""

import msgspec
import pytest

from commandside.deliverer_port import KEPT_BODY_BYTES, RESPONSE_BYTES_MAX, Answer
from tests.chaos.wire import Wire
from tests.engines import sink_faults as faults
from tests.engines.sink import Fault

TIMEOUT_MS = 400
CALLS_AT_THE_EDGE = 22


def test_f65_an_answer_at_the_very_deadline_is_one_answer_or_the_other(wire: Wire) -> None:
    calls = []
    for step in range(CALLS_AT_THE_EDGE):
        path = f"/{step}"
        # From 5 ms before the deadline to 5 ms after it.
        wire.sink.behave(path, faults.late((TIMEOUT_MS - 5 + step / 2) / 1000))
        calls.append(wire.call(path, timeout_ms=TIMEOUT_MS))
    answers = wire.answers(*calls)
    seen = {(answer.status, answer.error) for answer in answers.values()}
    assert seen <= {(200, ""), (0, "timeout")}
    assert all(answer.sent for answer in answers.values())
    wire.until(lambda: wire.sink.reached.total() == CALLS_AT_THE_EDGE, "all have answered")
    assert wire.deliverer.poll() == []


def test_f66_a_target_that_never_answers_costs_its_deadline_and_its_place_is_free(
    wire: Wire,
) -> None:
    wire.sink.behave("/", faults.hang)
    room = wire.deliverer.room
    answer = wire.hit(timeout_ms=TIMEOUT_MS)
    assert (answer.status, answer.error, answer.sent) == (0, "timeout", True)
    assert wire.sink.reached["/"] == 1
    assert wire.deliverer.room == room


@pytest.mark.parametrize(
    ("fault", "status"), [(faults.DRIPPED_HEAD, 0), (faults.DRIPPED_BODY, 200)]
)
def test_f67_a_target_that_drips_has_one_deadline_and_not_one_for_each_drop(
    wire: Wire, fault: Fault, status: int
) -> None:
    wire.sink.behave("/", fault)
    answer = wire.hit(timeout_ms=TIMEOUT_MS)
    assert (answer.status, answer.error, answer.sent) == (status, "timeout", True)
    assert wire.sink.reached["/"] == 1


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun"


@pytest.mark.parametrize("end", [faults.reset(BEGUN), faults.cut(BEGUN)], ids=["reset", "closed"])
def test_f68_a_body_that_is_lost_behind_whole_headers_is_noted_and_the_status_holds(
    wire: Wire, end: Fault
) -> None:
    wire.sink.behave("/", end)
    answer = wire.hit()
    assert (answer.status, answer.error, answer.sent) == (200, "reset", True)
    assert answer.body == b"begun"
    assert wire.sink.reached["/"] == 1


def test_f68_headers_that_are_cut_are_no_answer(wire: Wire) -> None:
    wire.sink.behave("/", faults.cut(b"HTTP/1.1 200 OK\r\nContent-Le"))
    answer = wire.hit()
    assert (answer.status, answer.sent) == (0, True)
    assert answer.error in ("reset", "bad_response")
    assert wire.sink.reached["/"] == 1


def test_f69_an_endless_body_is_left_and_what_came_is_kept(wire: Wire) -> None:
    wire.sink.behave("/", faults.ENDLESS_BODY)
    answer = wire.hit()
    assert (answer.status, answer.error) == (200, "response_too_large")
    assert len(answer.body) == KEPT_BODY_BYTES
    wire.until(lambda: wire.sink.reached["/"], "the target sees that its caller has gone")


def test_f70_a_bomb_is_never_unpacked(wire: Wire) -> None:
    wire.sink.behave("/", faults.BOMB)
    answer = wire.hit()
    assert (answer.status, answer.error) == (200, "response_too_large")
    assert answer.body[:2] == b"\x1f\x8b"
    assert wire.sink.at("/")[0].header("Accept-Encoding") == "identity"
    wire.until(lambda: wire.sink.reached["/"], "the target sees that its caller has gone")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["/", "http://169.254.169.254/", "http://10.0.0.1/", "//x"])
def test_f71_a_redirect_is_an_answer_and_never_followed(
    wire: Wire, status: int, place: str
) -> None:
    wire.sink.behave("/", faults.says(status, f"Location: {place}"))
    answer = wire.hit()
    assert (answer.status, answer.error) == (status, "")
    assert wire.sink.reached["/"] == 1
    assert (len(wire.sink.requests), wire.sink.connections) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "errors"),
    [
        (faults.MANY_HEADERS, {"response_too_large"}),
        # libcurl takes no line of this length, and says so before it hands it on.
        (faults.LONG_HEADER, {"response_too_large", "bad_response"}),
        (faults.INFORMATIONAL, {"response_too_large"}),
    ],
    ids=["many headers", "one long header", "informational answers"],
)
def test_f72_a_flood_of_headers_is_left(wire: Wire, fault: Fault, errors: set[str]) -> None:
    wire.sink.behave("/", fault)
    answer = wire.hit()
    assert answer.status == 0
    assert answer.error in errors
    wire.until(lambda: wire.sink.reached["/"], "the target sees that its caller has gone")
    after = wire.hit("/after")
    assert (after.status, after.error) == (200, "")


def test_f72_headers_just_below_the_bound_are_read(wire: Wire) -> None:
    lines = b"X-Many: " + b"y" * 90 + b"\r\n"
    whole = lines * (RESPONSE_BYTES_MAX // len(lines) - 2)
    wire.sink.behave("/", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + whole + b"\r\n")
    assert (wire.hit().status, len(wire.sink.requests)) == (200, 1)


def test_f76_a_connection_that_died_while_it_rested_is_an_attempt_and_no_second_request(
    wire: Wire,
) -> None:
    wire.sink.behave("/gone", faults.reset())
    assert wire.hit().status == 200
    answer = wire.hit("/gone")
    assert (answer.status, answer.error, answer.sent) == (0, "reset", True)
    assert wire.sink.reached["/gone"] == 1
    # It came over the connection of the first, and once.
    assert [request.connection for request in wire.sink.requests] == [1, 1]


def test_f76_a_connection_that_is_seen_to_be_dead_is_replaced(wire: Wire) -> None:
    wire.sink.behave("/last", faults.cut(faults.answer()))
    assert wire.hit("/last").status == 200
    assert wire.sink.reached["/last"] == 1
    answer = wire.hit()
    assert answer.status == 200 or (answer.error, answer.sent) == ("reset", True)
    assert len(wire.sink.at("/")) <= 1


def test_f127_calls_over_a_line_that_breaks_end_once_each(wire: Wire) -> None:
    """Every twentieth connection is reset, and every answer takes 200 ms."""
    calls = []
    for number in range(200):
        path = f"/{number}"
        wire.sink.behave(path, faults.reset() if number % 20 == 7 else faults.late(0.2))
        calls.append(msgspec.structs.replace(wire.call(path), tenant_id=b"%016d" % (number % 8)))
    answers: dict[int, Answer] = {}
    for first in range(0, len(calls), 50):
        answers |= wire.answers(*calls[first : first + 50])
    broken = {call.token for call in calls if int(call.path[1:]) % 20 == 7}
    assert {token for token, answer in answers.items() if answer.error} == broken
    assert {answer.error for answer in answers.values()} == {"", "reset"}
    assert wire.sink.reached.total() == len(calls) == len(wire.sink.requests)
